/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Makes entries of AMQP field tables, and compares short strings that were received. An entry points to the key and
 * the value it was made of: they must stay as long as the entry is used. */
#ifndef AL_CORE_BASE_FIELD_H
#define AL_CORE_BASE_FIELD_H

#include <stdbool.h>

#include "core/base/amqp.h"

amqp_table_entry_t al_field_text(const char *key, const char *text);
amqp_table_entry_t al_field_number(const char *key, int64_t number);
amqp_table_entry_t al_field_yes(const char *key);
amqp_table_entry_t al_field_table(const char *key, int count, amqp_table_entry_t *entries);

/* True if the received `bytes`, which have no NUL at their end, are equal to `text`. */
bool al_field_is(amqp_bytes_t bytes, const char *text);

#endif
