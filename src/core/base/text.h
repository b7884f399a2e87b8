/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Checks text that is sent to the broker. It must be UTF-8 without control characters, because the broker's tools and
 * logs show it. */
#ifndef AL_CORE_BASE_TEXT_H
#define AL_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

bool al_text_is_utf8(const char *text, size_t length);

/* Returns what is wrong with the text: "is not UTF-8" or "holds a control character". Returns NULL if it is right. */
const char *al_text_wrong(const char *text, size_t length);

/* Replaces each byte of each wrong character by "?". */
void al_text_mend(char *text);

#endif
