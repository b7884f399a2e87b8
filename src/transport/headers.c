/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * An entry consists of its key's length (1 byte), the key, its type (1 byte), and a value whose length the type
 * tells. */
#include "transport/headers.h"

#include <stdbool.h>
#include <string.h>

#include "core/wire/channel.h"

#define NO_TYPE SIZE_MAX
#define BEHIND_LENGTH (SIZE_MAX - 1) /* four bytes tell it */

static size_t size_of_type(uint8_t type) {
  switch (type) {
    case AMQP_FIELD_KIND_VOID:
      return 0;
    case AMQP_FIELD_KIND_BOOLEAN:
    case AMQP_FIELD_KIND_I8:
    case AMQP_FIELD_KIND_U8:
      return 1;
    case AMQP_FIELD_KIND_I16:
    case AMQP_FIELD_KIND_U16:
      return 2;
    case AMQP_FIELD_KIND_I32:
    case AMQP_FIELD_KIND_U32:
    case AMQP_FIELD_KIND_F32:
      return 4;
    case AMQP_FIELD_KIND_DECIMAL:
      return 5;
    case AMQP_FIELD_KIND_I64:
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_F64:
    case AMQP_FIELD_KIND_TIMESTAMP:
      return 8;
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES:
    case AMQP_FIELD_KIND_ARRAY:
    case AMQP_FIELD_KIND_TABLE:
      return BEHIND_LENGTH;
    default:
      return NO_TYPE;
  }
}

static bool is_integer(uint8_t type) {
  return type == AMQP_FIELD_KIND_I8 || type == AMQP_FIELD_KIND_U8 || type == AMQP_FIELD_KIND_I16 ||
         type == AMQP_FIELD_KIND_U16 || type == AMQP_FIELD_KIND_I32 || type == AMQP_FIELD_KIND_U32 ||
         type == AMQP_FIELD_KIND_I64;
}

static bool is_read(const uint8_t *key, size_t length) {
  static const char *const keys[] = {AL_HEADER_BASE, "x-acquired-count", "x-delivery-count"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (strlen(keys[i]) == length && memcmp(keys[i], key, length) == 0) return true;
  return false;
}

/* The length of the entry that begins here; 0: it is malformed. */
static size_t entry_length(const uint8_t *entry, size_t left) {
  size_t type_at = 1 + (size_t)entry[0], value_at = type_at + 1;
  if (left < value_at) return 0;
  size_t size = size_of_type(entry[type_at]);
  if (size == NO_TYPE) return 0;
  if (size == BEHIND_LENGTH) {
    const uint8_t *at = entry + value_at;
    if (left < value_at + 4) return 0;
    size = 4 + ((size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]);
  }
  return size <= left - value_at ? value_at + size : 0;
}

size_t al_headers_keep(uint8_t *table, size_t length) {
  size_t kept = 0;
  for (size_t at = 0, entry; at < length; at += entry) {
    entry = entry_length(table + at, length - at);
    if (entry == 0) break;
    size_t key = table[at];
    if (!is_read(table + at + 1, key) || !is_integer(table[at + 1 + key])) continue;
    memmove(table + kept, table + at, entry);
    kept += entry;
  }
  return kept;
}
