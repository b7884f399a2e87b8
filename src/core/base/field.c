/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/field.h"

#include <string.h>

amqp_table_entry_t al_field_text(const char *key, const char *text) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = amqp_cstring_bytes(text);
  return entry;
}

amqp_table_entry_t al_field_number(const char *key, int64_t number) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
  entry.value.kind = AMQP_FIELD_KIND_I64;
  entry.value.value.i64 = number;
  return entry;
}

amqp_table_entry_t al_field_yes(const char *key) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
  entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
  entry.value.value.boolean = 1;
  return entry;
}

amqp_table_entry_t al_field_table(const char *key, int count, amqp_table_entry_t *entries) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
  entry.value.kind = AMQP_FIELD_KIND_TABLE;
  entry.value.value.table = (amqp_table_t){.num_entries = count, .entries = entries};
  return entry;
}

bool al_field_is(amqp_bytes_t bytes, const char *text) {
  return bytes.len == strlen(text) && memcmp(bytes.bytes, text, bytes.len) == 0;
}

static int64_t integer(const amqp_field_value_t *value, int64_t otherwise) {
  switch (value->kind) {
    case AMQP_FIELD_KIND_I8:
      return value->value.i8;
    case AMQP_FIELD_KIND_U8:
      return value->value.u8;
    case AMQP_FIELD_KIND_I16:
      return value->value.i16;
    case AMQP_FIELD_KIND_U16:
      return value->value.u16;
    case AMQP_FIELD_KIND_I32:
      return value->value.i32;
    case AMQP_FIELD_KIND_U32:
      return value->value.u32;
    case AMQP_FIELD_KIND_I64:
      return value->value.i64;
    default:
      return otherwise;
  }
}

static const amqp_table_entry_t *find(const amqp_table_t *table, const char *key) {
  for (int i = 0; i < table->num_entries; i++)
    if (al_field_is(table->entries[i].key, key)) return &table->entries[i];
  return NULL;
}

int64_t al_field_integer(const amqp_table_t *table, const char *key, int64_t otherwise) {
  const amqp_table_entry_t *entry = find(table, key);
  return entry ? integer(&entry->value, otherwise) : otherwise;
}

bool al_field_is_there(const amqp_table_t *table, const char *key) { return find(table, key) != NULL; }
