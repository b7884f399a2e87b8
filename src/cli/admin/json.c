/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void text_of(char **text, const json_t *value) {
  if (json_string_length(value) > 0)
    admin_row_text(text, json_string_value(value), json_string_length(value));
}

/* Integers are read as reals, because AMQP has more than 63 bits of them. */
static int64_t number_of(const json_t *value) {
  double number = json_is_real(value) ? json_real_value(value) : -1;
  return number > -0x1p63 && number < 0x1p63 ? (int64_t)number : -1;
}

static const json_t *member(const json_t *object, const char *outer, const char *inner) {
  return json_object_get(json_object_get(object, outer), inner);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static void take_argument(admin_row *row, const char *key, const json_t *value) {
  if (json_is_string(value))
    admin_row_argument(row, key, json_string_value(value), json_string_length(value), 0);
  else if (json_is_real(value))
    admin_row_argument(row, key, NULL, 0, number_of(value));
}

/* An object; with rabbitmqctl a list of [key, type, value]. */
static void take_arguments(admin_row *row, json_t *arguments) {
  const char *key;
  json_t *value;
  size_t index;
  json_object_foreach(arguments, key, value) take_argument(row, key, value);
  json_array_foreach(arguments, index, value) {
    key = json_string_value(json_array_get(value, 0));
    if (key) take_argument(row, key, json_array_get(value, 2));
  }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static admin_kind kind_of(const json_t *object) {
  if (json_object_get(object, "consumer_tag")) return ADMIN_CONSUMER;
  if (!json_object_get(object, "name")) return ADMIN_KINDS;
  if (json_object_get(object, "arguments")) return ADMIN_QUEUE;
  bool is_channel = json_object_get(object, "number") || json_object_get(object, "pid");
  return is_channel ? ADMIN_CHANNEL : ADMIN_KINDS;
}

static const json_t *queue_row(admin_row *row, const json_t *object) {
  text_of(&row->vhost, json_object_get(object, "vhost"));
  text_of(&row->connection, member(object, "owner_pid_details", "name"));
  row->messages = number_of(json_object_get(object, "messages"));
  row->ready = number_of(json_object_get(object, "messages_ready"));
  row->unacked = number_of(json_object_get(object, "messages_unacknowledged"));
  return json_object_get(object, "name");
}

static const json_t *consumer_row(admin_row *row, const json_t *object) {
  const json_t *name = member(object, "queue", "name"), *active = json_object_get(object, "active");
  text_of(&row->vhost, member(object, "queue", "vhost"));
  text_of(&row->channel, json_object_get(object, "channel_pid"));
  text_of(&row->channel, member(object, "channel_details", "name"));
  text_of(&row->connection, member(object, "channel_details", "connection_name"));
  text_of(&row->user, member(object, "channel_details", "user"));
  text_of(&row->ticket, json_object_get(object, "consumer_tag"));
  if (json_is_boolean(active)) row->active = json_is_true(active);
  return name ? name : json_object_get(object, "queue_name");
}

/* Its name is that of its connection, a blank, and its number in brackets. The pids that rabbitmqctl prints are not those
 * that it takes. */
static void channel_row(admin_row *row, const json_t *object) {
  const json_t *name = json_object_get(object, "name");
  text_of(&row->channel, json_object_get(object, json_object_get(object, "number") ? "name" : "pid"));
  text_of(&row->connection, name);
  char *number = row->connection ? strrchr(row->connection, ' ') : NULL;
  if (number && number[1] == '(') *number = '\0';
  text_of(&row->user, json_object_get(object, "user"));
  row->unacked = number_of(json_object_get(object, "messages_unacknowledged"));
}

/* False: the object is none of these. */
static bool add_row(admin_rows *rows, const json_t *object) {
  admin_kind kind = kind_of(object);
  const json_t *queue = NULL;
  if (kind == ADMIN_KINDS) return false;
  admin_row row = admin_row_new(kind);
  if (kind == ADMIN_QUEUE) queue = queue_row(&row, object);
  if (kind == ADMIN_CONSUMER) queue = consumer_row(&row, object);
  if (kind == ADMIN_CHANNEL) channel_row(&row, object);
  rows->is_ctl = rows->is_ctl || json_object_get(object, "queue_name");
  take_arguments(&row, json_object_get(object, "arguments"));
  const char *name = json_string_value(queue);
  admin_rows_add(rows, &row, name ? name : "", name ? json_string_length(queue) : 0);
  return true;
}

/* ---- the bytes -------------------------------------------------------------------------------------------------- */

/* An object is mended where jansson refuses what any user can have put into arguments of a queue, so that nobody hides
 * a queue: keys with a NUL, and containers in containers. */
#define DEPTH_MOST 16
#define HOW (JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL)

static char *skip_blank(char *at, const char *end) {
  while (at < end && *at && strchr(" \t\r\n", *at)) at++;
  return at;
}

/* Returns the byte after the string that begins at `at`, or NULL. */
static char *string_end(char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++) at += *at == '\\';
  return at < end ? at + 1 : NULL;
}

static void mend_key(char *at, const char *end) {
  for (; at < end; at++) {
    if (*at != '\\') continue;
    if (end - at > 6 && memcmp(at, "\\u0000", 6) == 0) memcpy(at, "\\ufffd", 6);
    at++;
  }
}

/* The list that is the member "items" of an object, by the key and what follows; or NULL. */
static char *items_of(const char *key, char *colon, const char *end) {
  char *list = skip_blank(colon + 1, end);
  return strncmp(key, "\"items\"", 7) == 0 && list < end && *list == '[' ? list : NULL;
}

/* Mends the object that begins at `at`. Returns the byte after it, or NULL if it has no end. Sets `items` if it has
 * them. */
static char *mend(char *at, const char *end, char **items) {
  char *deep = NULL;
  size_t depth = 0;
  while (at < end) {
    char *begin = at;
    if (*begin == '"') {
      if (!(at = string_end(begin, end))) return NULL;
      char *colon = skip_blank(at, end);
      if (colon == end || *colon != ':') continue;
      mend_key(begin, at);
      if (depth == 1 && !*items) *items = items_of(begin, colon, end);
      continue;
    }
    at++;
    if ((*begin == '{' || *begin == '[') && depth++ == DEPTH_MOST) deep = begin;
    if ((*begin == '}' || *begin == ']') && --depth == DEPTH_MOST) {
      memset(deep, ' ', (size_t)(at - deep));
      *deep = '0';
    }
    if (depth == 0) return at;
  }
  return NULL;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

typedef struct admin_reader {
  admin_rows *rows;
  char *input, *at;
  const char *end;
  char *why;
} admin_reader;

static bool refuse(const admin_reader *reader, const json_t *answer) {
  const char *error = json_string_value(json_object_get(answer, "error"));
  const char *reason = json_string_value(json_object_get(answer, "reason"));
  snprintf(reader->why, AL_MESSAGE_SIZE, "it lists neither queues nor consumers nor channels%s%s%s%s",
           error ? ": " : "", error ? error : "", reason ? ", " : "", reason ? reason : "");
  return false;
}

/* Neither a row nor a list begins here: this is no JSON, or that of something else. */
static bool refuse_rest(const admin_reader *reader) {
  json_error_t error;
  json_t *other = json_loadb(reader->at, (size_t)(reader->end - reader->at), HOW | JSON_DECODE_ANY, &error);
  size_t at = (size_t)(reader->at - reader->input);
  if (other)
    refuse(reader, NULL);
  else
    snprintf(reader->why, AL_MESSAGE_SIZE, "no JSON at byte %zu: %s", at + (size_t)error.position,
             error.text);
  json_decref(other);
  return false;
}

/* One row of a list that cannot be read hides no other. Outside of a list nothing shows that it is a row. */
static bool take_row(admin_reader *reader, const char *end, bool is_listed) {
  json_error_t error;
  json_t *object = json_loadb(reader->at, (size_t)(end - reader->at), HOW, &error);
  if (!object && !is_listed) return refuse_rest(reader);
  if (!object) reader->rows->unread++;
  bool is_fine = !object || add_row(reader->rows, object) || refuse(reader, object);
  json_decref(object);
  return is_fine;
}

static bool read_list(admin_reader *reader);

/* A row, or a page that has rows. */
static bool read_object(admin_reader *reader, bool is_listed) {
  char *items = NULL, *end = mend(reader->at, reader->end, &items);
  if (!end) return refuse_rest(reader);
  bool is_page = !is_listed && items;
  if (is_page) reader->at = items;
  bool is_fine = is_page ? read_list(reader) : take_row(reader, end, is_listed);
  if (is_fine) reader->at = end;
  return is_fine;
}

static bool next_is(admin_reader *reader, char byte) {
  reader->at = skip_blank(reader->at, reader->end);
  bool is_it = reader->at < reader->end && *reader->at == byte;
  reader->at += is_it;
  return is_it;
}

static bool read_list(admin_reader *reader) {
  reader->at++;
  if (next_is(reader, ']')) return true;
  do {
    reader->at = skip_blank(reader->at, reader->end);
    if (reader->at == reader->end || *reader->at != '{') return refuse_rest(reader);
    if (!read_object(reader, true)) return false;
  } while (next_is(reader, ','));
  return next_is(reader, ']') || refuse_rest(reader);
}

bool admin_json_read(admin_rows *rows, char *input, size_t length, char why[AL_MESSAGE_SIZE]) {
  admin_reader reader = {.rows = rows, .input = input, .at = input, .end = input + length, .why = why};
  bool is_fine = true;
  while (is_fine && (reader.at = skip_blank(reader.at, reader.end)) < reader.end) {
    if (*reader.at == '[')
      is_fine = read_list(&reader);
    else
      is_fine = *reader.at == '{' ? read_object(&reader, false) : refuse_rest(&reader);
  }
  return is_fine;
}
