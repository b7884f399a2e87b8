/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Text that goes to the broker, whose tools and logs show it: UTF-8 without control characters. */
#ifndef AL_CORE_BASE_TEXT_H
#define AL_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

bool al_text_is_utf8(const char *text, size_t length);

/* What is wrong with it: "is not UTF-8" or "holds a control character"; NULL if nothing is. */
const char *al_text_wrong(const char *text, size_t length);

/* Replaces each byte of what is wrong by "?". */
void al_text_mend(char *text);

#endif
