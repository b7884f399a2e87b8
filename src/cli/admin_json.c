/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin_json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void text_of(char **text, const json_t *value) {
  if (json_string_length(value) > 0)
    admin_row_text(text, json_string_value(value), json_string_length(value));
}

static int64_t number_of(const json_t *value) {
  return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static const json_t *member(const json_t *object, const char *outer, const char *inner) {
  return json_object_get(json_object_get(object, outer), inner);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static void take_argument(admin_row *row, const char *key, const json_t *value) {
  if (json_is_string(value))
    admin_row_argument(row, key, json_string_value(value), json_string_length(value), 0);
  else if (json_is_integer(value))
    admin_row_argument(row, key, NULL, 0, (int64_t)json_integer_value(value));
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
  bool is_channel = json_object_get(object, "connection_details") || json_object_get(object, "connection");
  if (is_channel && (json_object_get(object, "number") || json_object_get(object, "pid")))
    return ADMIN_CHANNEL;
  return json_object_get(object, "name") && json_object_get(object, "arguments") ? ADMIN_QUEUE : ADMIN_KINDS;
}

static const json_t *queue_row(admin_row *row, const json_t *object) {
  text_of(&row->vhost, json_object_get(object, "vhost"));
  text_of(&row->connection, json_object_get(object, "owner_pid"));
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
  text_of(&row->ticket, json_object_get(object, "consumer_tag"));
  if (json_is_boolean(active)) row->active = json_is_true(active);
  return name ? name : json_object_get(object, "queue_name");
}

static void channel_row(admin_row *row, const json_t *object) {
  text_of(&row->channel, json_object_get(object, "pid"));
  text_of(&row->channel, json_object_get(object, "name"));
  text_of(&row->connection, json_object_get(object, "connection"));
  text_of(&row->connection, member(object, "connection_details", "name"));
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
  take_arguments(&row, json_object_get(object, "arguments"));
  const char *name = json_string_value(queue);
  admin_rows_add(rows, &row, name ? name : "", name ? json_string_length(queue) : 0);
  return true;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static bool add_answer(admin_rows *rows, const json_t *answer) {
  const json_t *list =
      json_is_object(answer) && json_object_get(answer, "items") ? json_object_get(answer, "items") : answer;
  size_t index;
  json_t *object;
  if (json_is_object(list)) return add_row(rows, list);
  json_array_foreach(list, index, object) {
    if (!add_row(rows, object)) return false;
  }
  return json_is_array(list);
}

static bool refuse(const json_t *answer, char why[AL_MESSAGE_SIZE]) {
  const char *error = json_string_value(json_object_get(answer, "error"));
  const char *reason = json_string_value(json_object_get(answer, "reason"));
  snprintf(why, AL_MESSAGE_SIZE, "it lists neither queues nor consumers nor channels%s%s%s%s",
           error ? ": " : "", error ? error : "", reason ? ", " : "", reason ? reason : "");
  return false;
}

static size_t skip_blank(const char *input, size_t length, size_t at) {
  while (at < length && input[at] && strchr(" \t\r\n", input[at])) at++;
  return at;
}

bool admin_json_read(admin_rows *rows, const char *input, size_t length, char why[AL_MESSAGE_SIZE]) {
  json_error_t error;
  for (size_t at = skip_blank(input, length, 0); at < length; at = skip_blank(input, length, at)) {
    json_t *answer = json_loadb(input + at, length - at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
    if (!answer) {
      snprintf(why, AL_MESSAGE_SIZE, "no JSON at byte %zu: %s", at + (size_t)error.position, error.text);
      return false;
    }
    bool is_fine = add_answer(rows, answer) || refuse(answer, why);
    json_decref(answer);
    if (!is_fine) return false;
    at += (size_t)error.position;
  }
  return true;
}
