/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Makes entries of AMQP field tables, and reads short strings and tables that were received. An entry points to the key and
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

/* The integer with this key in a received table, of any of AMQP's widths; `otherwise` if there is none. */
int64_t al_field_integer(const amqp_table_t *table, const char *key, int64_t otherwise);

/* True if a received table has this key. */
bool al_field_is_there(const amqp_table_t *table, const char *key);

#endif
