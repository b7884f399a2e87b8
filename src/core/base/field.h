/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Entries of AMQP field tables, which point to what they are given; and short strings that arrive. */
#ifndef AL_CORE_BASE_FIELD_H
#define AL_CORE_BASE_FIELD_H

#include <stdbool.h>

#include "core/base/amqp.h"

amqp_table_entry_t al_field_text(const char *key, const char *text);
amqp_table_entry_t al_field_number(const char *key, int64_t number);
amqp_table_entry_t al_field_yes(const char *key);
amqp_table_entry_t al_field_table(const char *key, int count, amqp_table_entry_t *entries);

/* What arrived, without a NUL at its end, is this text. */
bool al_field_is(amqp_bytes_t bytes, const char *text);

#endif
