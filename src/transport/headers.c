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

static bool is_one_of(const char *const *keys, size_t count, const uint8_t *key, size_t length) {
  for (size_t i = 0; i < count; i++)
    if (strlen(keys[i]) == length && memcmp(keys[i], key, length) == 0) return true;
  return false;
}

/* Shortens the entry to what is read of it, and returns its length; 0: nothing is. */
static size_t shorten(uint8_t *entry, size_t length) {
  static const char *const numbers[] = {AL_HEADER_BASE, "x-acquired-count", "x-delivery-count"};
  static const char *const moves[] = AL_HEADERS_OF_MOVES;
  const uint8_t *key = entry + 1;
  uint8_t *type = entry + 1 + entry[0];
  if (is_one_of(numbers, sizeof numbers / sizeof *numbers, key, entry[0]))
    return is_integer(*type) ? length : 0;
  if (!is_one_of(moves, sizeof moves / sizeof *moves, key, entry[0])) return 0;
  *type = AMQP_FIELD_KIND_VOID; /* that it is there is all that matters */
  return 2 + (size_t)entry[0];
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
    size_t length_left = shorten(table + at, entry);
    memmove(table + kept, table + at, length_left);
    kept += length_left;
  }
  return kept;
}

void al_headers_discard(uint8_t table[AL_HEADERS_DISCARDED]) {
  static const char mark[] = "\7x-death"; /* with the length of its name */
  memcpy(table, mark, AL_HEADERS_DISCARDED - 1);
  table[AL_HEADERS_DISCARDED - 1] = AMQP_FIELD_KIND_VOID;
}
