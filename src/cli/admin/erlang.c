/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/erlang.h"

#include <string.h>

#define KEY_SIZE 64 /* longer keys are none of this library, and are cut */
#define TEXT_SIZE 1024

/* Longer texts are cut. */
typedef struct admin_text {
  char bytes[TEXT_SIZE];
  size_t length;
} admin_text;

typedef struct admin_reader {
  const char *at, *end;
} admin_reader;

static char peek(const admin_reader *reader) { return reader->at < reader->end ? *reader->at : '\0'; }

static bool accept(admin_reader *reader, const char *token) {
  size_t length = strlen(token);
  if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, token, length) != 0) return false;
  reader->at += length;
  return true;
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

static void put(admin_text *text, char byte) {
  if (text->length + 1 < sizeof text->bytes) text->bytes[text->length++] = byte;
}

static void put_character(admin_text *text, int64_t code) {
  if (text->length + 5 > sizeof text->bytes) return;
  if (code < 0x80) {
    put(text, (char)code);
  } else if (code < 0x800) {
    put(text, (char)(0xc0 | code >> 6));
    put(text, (char)(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    put(text, (char)(0xe0 | code >> 12));
    put(text, (char)(0x80 | (code >> 6 & 0x3f)));
    put(text, (char)(0x80 | (code & 0x3f)));
  } else {
    put(text, (char)(0xf0 | code >> 18));
    put(text, (char)(0x80 | (code >> 12 & 0x3f)));
    put(text, (char)(0x80 | (code >> 6 & 0x3f)));
    put(text, (char)(0x80 | (code & 0x3f)));
  }
}

static int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : 99;
}

/* Reads digits of a base, at most `most`; a number that is too large becomes `otherwise`. */
static int64_t read_digits(admin_reader *reader, int base, int most, int64_t otherwise) {
  int64_t code = 0;
  for (int i = 0; i < most && digit(peek(reader)) < base; i++, reader->at++)
    code = code < 0 || code > 0x10ffff ? -1 : code * base + digit(*reader->at);
  return code < 0 || code > 0x10ffff ? otherwise : code;
}

/* Behind a backslash. */
static void read_escape(admin_reader *reader, admin_text *text) {
  static const char letters[] = "nrtbfves0d", meant[] = "\n\r\t\b\f\v\033 \0\177";
  if (accept(reader, "x{")) {
    put_character(text, read_digits(reader, 16, 8, '?'));
    accept(reader, "}");
  } else if (accept(reader, "x")) {
    put_character(text, read_digits(reader, 16, 2, '?'));
  } else if (digit(peek(reader)) < 8) {
    put_character(text, read_digits(reader, 8, 3, '?'));
  } else if (reader->at < reader->end) {
    const char *letter = *reader->at ? strchr(letters, *reader->at) : NULL;
    put(text, letter ? meant[letter - letters] : *reader->at);
    reader->at++;
  }
}

/* Behind the opening quote. False: it is not closed. */
static bool read_quoted(admin_reader *reader, char quote, admin_text *text) {
  while (reader->at < reader->end && *reader->at != quote) {
    if (*reader->at == '\\') {
      reader->at++;
      read_escape(reader, text);
    } else {
      put(text, *reader->at++);
    }
  }
  return accept(reader, (char[]){quote, '\0'});
}

/* ---- numbers, and lists of characters --------------------------------------------------------------------------- */

/* False: no whole number of 63 bits stands here. The reader is then where it was. */
static bool read_number(admin_reader *reader, int64_t *number) {
  const char *from = reader->at;
  bool is_negative = accept(reader, "-");
  int64_t value = 0;
  const char *first = reader->at;
  for (; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++) {
    if (value > (INT64_MAX - 9) / 10) break;
    value = 10 * value + (*reader->at - '0');
  }
  char next = peek(reader);
  bool is_whole = reader->at > first && next != '.' && next != '#' && !(next >= '0' && next <= '9');
  if (!is_whole) reader->at = from;
  *number = is_negative ? -value : value;
  return is_whole;
}

/* Behind "[": true if this is a list of characters, which is then read. Otherwise the reader is where it was. */
static bool read_characters(admin_reader *reader, admin_text *text) {
  const char *from = reader->at;
  int64_t code;
  if (accept(reader, "]")) return true;
  do {
    if (!read_number(reader, &code) || code < 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      break;
    put_character(text, code);
    if (accept(reader, "]")) return true;
  } while (accept(reader, ","));
  reader->at = from;
  text->length = 0;
  return false;
}

/* ---- terms ------------------------------------------------------------------------------------------------------ */

/* Skips the rest of a term: up to "," or a closing bracket of the outer term. Brackets inside are counted. False: the input
 * ends before, or there are more closing brackets. */
static bool skip_term(admin_reader *reader) {
  admin_text ignored = {.length = 0};
  size_t depth = 0;
  for (; reader->at < reader->end; reader->at++) {
    char c = *reader->at;
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    if (c == '[' || c == '{') depth++;
    if (c == ']' || c == '}') depth--;
    if (c != '"' && c != '\'') continue;
    reader->at++;
    if (!read_quoted(reader, c, &ignored)) return false;
    reader->at--;
  }
  return false;
}

typedef struct admin_value {
  enum { ADMIN_TEXT, ADMIN_NUMBER, ADMIN_OTHER } kind;
  admin_text text;
  int64_t number;
} admin_value;

/* <<"…">> and <<"…"/utf8>>; others are skipped. */
static bool read_binary(admin_reader *reader, admin_value *value) {
  value->kind = ADMIN_TEXT;
  if (accept(reader, ">>")) return true;
  if (accept(reader, "\"") && read_quoted(reader, '"', &value->text) &&
      (accept(reader, ">>") || accept(reader, "/utf8>>")))
    return true;
  value->kind = ADMIN_OTHER;
  return skip_term(reader);
}

static bool read_value(admin_reader *reader, admin_value *value) {
  value->text.length = 0;
  value->kind = ADMIN_TEXT;
  if (accept(reader, "\"")) return read_quoted(reader, '"', &value->text);
  if (accept(reader, "<<")) return read_binary(reader, value);
  if (peek(reader) == '[') {
    admin_reader ahead = {.at = reader->at + 1, .end = reader->end};
    if (read_characters(&ahead, &value->text)) {
      *reader = ahead;
      return true;
    }
  }
  value->kind = ADMIN_NUMBER;
  if (read_number(reader, &value->number)) return true;
  value->kind = ADMIN_OTHER;
  return skip_term(reader);
}

/* Behind "{". */
static bool read_pair(admin_reader *reader, admin_take_argument *take, void *context) {
  char key[KEY_SIZE];
  admin_value value = {.kind = ADMIN_OTHER};
  if (!read_value(reader, &value)) return false;
  bool has_key = value.kind == ADMIN_TEXT && value.text.length < sizeof key && accept(reader, ",");
  if (!has_key) return skip_term(reader) && accept(reader, "}");
  memcpy(key, value.text.bytes, value.text.length);
  key[value.text.length] = '\0';
  do {
    if (!read_value(reader, &value)) return false;
  } while (accept(reader, ","));
  if (!accept(reader, "}")) return false;
  bool is_text = value.kind == ADMIN_TEXT;
  value.text.bytes[value.text.length] = '\0';
  if (value.kind != ADMIN_OTHER)
    take(context, key, is_text ? value.text.bytes : NULL, value.text.length, value.number);
  return true;
}

bool admin_erlang_read(const char *terms, size_t length, admin_take_argument *take, void *context) {
  admin_reader reader = {.at = terms, .end = terms + length};
  if (!accept(&reader, "[")) return false;
  if (accept(&reader, "]")) return reader.at == reader.end;
  do {
    if (!accept(&reader, "{") || !read_pair(&reader, take, context)) return false;
  } while (accept(&reader, ","));
  return accept(&reader, "]") && reader.at == reader.end;
}
