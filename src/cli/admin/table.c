/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/table.h"

#include <stdlib.h>
#include <string.h>

#include "cli/admin/erlang.h"

#define COLUMNS_MOST 64

/* What is read of a table; COLUMN_OTHER is a column that tells nothing of locks. */
typedef enum admin_column {
  COLUMN_NONE, /* no name of a column */
  COLUMN_OTHER,
  COLUMN_NAME,
  COLUMN_ARGUMENTS,
  COLUMN_OWNER,
  COLUMN_MESSAGES,
  COLUMN_READY,
  COLUMN_UNACKED,
  COLUMN_QUEUE,
  COLUMN_CHANNEL,
  COLUMN_TAG,
  COLUMN_PID,
  COLUMN_CONNECTION,
  COLUMN_ACTIVE,
  COLUMN_VHOST
} admin_column;

typedef struct admin_field {
  const char *text;
  size_t length;
} admin_field;

typedef struct admin_table {
  admin_rows *rows;
  admin_unread *unread;
  admin_kind kind;
  admin_column columns[COLUMNS_MOST];
  size_t count; /* of columns; 0: no table has begun */
  size_t line;
} admin_table;

/* ---- the names of the columns ----------------------------------------------------------------------------------- */

static bool is(const admin_field *field, const char *text) {
  return strlen(text) == field->length && memcmp(field->text, text, field->length) == 0;
}

static admin_column column_of(const admin_field *field) {
  static const struct {
    const char *name;
    admin_column column;
  } known[] = {{"name", COLUMN_NAME},
               {"arguments", COLUMN_ARGUMENTS},
               {"owner_pid", COLUMN_OWNER},
               {"messages", COLUMN_MESSAGES},
               {"messages_ready", COLUMN_READY},
               {"messages_unacknowledged", COLUMN_UNACKED},
               {"queue_name", COLUMN_QUEUE},
               {"channel_pid", COLUMN_CHANNEL},
               {"consumer_tag", COLUMN_TAG},
               {"pid", COLUMN_PID},
               {"connection", COLUMN_CONNECTION},
               {"active", COLUMN_ACTIVE},
               {"vhost", COLUMN_VHOST}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (is(field, known[i].name)) return known[i].column;
  for (size_t i = 0; i < field->length; i++)
    if ((field->text[i] < 'a' || field->text[i] > 'z') && field->text[i] != '_') return COLUMN_NONE;
  return field->length > 0 ? COLUMN_OTHER : COLUMN_NONE;
}

/* Which kind of table has these columns; ADMIN_KINDS: they are none, or those of another table. No row is taken for the
 * names of columns, whatever its queue is called: arguments and pids have other characters than names of columns. */
static admin_kind kind_of(const admin_column *columns, size_t count) {
  bool has[COLUMN_VHOST + 1] = {false};
  for (size_t i = 0; i < count; i++) has[columns[i]] = true;
  if (has[COLUMN_NONE]) return ADMIN_KINDS;
  if (has[COLUMN_QUEUE] && has[COLUMN_ARGUMENTS]) return ADMIN_CONSUMER;
  if (has[COLUMN_PID] && has[COLUMN_CONNECTION]) return ADMIN_CHANNEL;
  return has[COLUMN_NAME] && has[COLUMN_ARGUMENTS] ? ADMIN_QUEUE : ADMIN_KINDS;
}

/* True if the line begins a table. */
static bool begins(admin_table *table, const admin_field *fields, size_t count) {
  admin_column columns[COLUMNS_MOST] = {COLUMN_NONE};
  for (size_t i = 0; i < count; i++) columns[i] = column_of(&fields[i]);
  admin_kind kind = kind_of(columns, count);
  if (kind == ADMIN_KINDS) return false;
  memcpy(table->columns, columns, sizeof columns);
  table->count = count;
  table->kind = kind;
  table->rows->has[kind] = true;
  return true;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void take_argument(void *context, const char *key, const char *text, size_t length, int64_t number) {
  admin_row_argument(context, key, text, length, number);
}

static int64_t number_of(const admin_field *field) {
  char digits[20] = "";
  if (field->length == 0 || field->length >= sizeof digits) return -1;
  memcpy(digits, field->text, field->length);
  return digits[strspn(digits, "0123456789")] == '\0' ? strtoll(digits, NULL, 10) : -1;
}

static void text_of(char **text, const admin_field *field) {
  if (field->length > 0) admin_row_text(text, field->text, field->length);
}

/* False: the field is not what stands in such a column. */
static bool take(admin_row *row, admin_column column, const admin_field *field) {
  switch (column) {
    case COLUMN_ARGUMENTS:
      return field->length == 0 || admin_erlang_read(field->text, field->length, take_argument, row);
    case COLUMN_OWNER:
    case COLUMN_CONNECTION:
      text_of(&row->connection, field);
      break;
    case COLUMN_CHANNEL:
    case COLUMN_PID:
      text_of(&row->channel, field);
      break;
    case COLUMN_TAG:
      text_of(&row->ticket, field);
      break;
    case COLUMN_VHOST:
      text_of(&row->vhost, field);
      break;
    case COLUMN_ACTIVE:
      row->active = is(field, "true") ? 1 : is(field, "false") ? 0 : -1;
      break;
    case COLUMN_MESSAGES:
      row->messages = number_of(field);
      break;
    case COLUMN_READY:
      row->ready = number_of(field);
      break;
    case COLUMN_UNACKED:
      row->unacked = number_of(field);
      break;
    default:
      break;
  }
  return true;
}

static void not_understood(admin_table *table) {
  if (table->unread->lines++ == 0) table->unread->first = table->line;
}

/* A row whose arguments are not understood still tells that its queue exists. */
static void add_row(admin_table *table, const admin_field *fields) {
  admin_row row = admin_row_new(table->kind);
  admin_field queue = {"", 0};
  bool is_understood = true;
  for (size_t i = 0; i < table->count; i++) {
    bool is_name = table->columns[i] == (table->kind == ADMIN_CONSUMER ? COLUMN_QUEUE : COLUMN_NAME);
    if (is_name) queue = fields[i];
    is_understood = take(&row, table->columns[i], &fields[i]) && is_understood;
  }
  if (!is_understood) not_understood(table);
  admin_rows_add(table->rows, &row, queue.text, queue.length);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* Returns the number of fields, at most COLUMNS_MOST + 1. */
static size_t split(const char *line, size_t length, admin_field fields[COLUMNS_MOST]) {
  const char *end = line + length;
  size_t count = 0;
  for (const char *at = line;; count++) {
    const char *tab = memchr(at, '\t', (size_t)(end - at));
    if (count == COLUMNS_MOST) return COLUMNS_MOST + 1;
    fields[count] = (admin_field){at, (size_t)((tab ? tab : end) - at)};
    if (!tab) return count + 1;
    at = tab + 1;
  }
}

static void read_line(admin_table *table, const char *line, size_t length) {
  admin_field fields[COLUMNS_MOST];
  size_t count = split(line, length, fields);
  table->line++;
  if (length == 0 || (count <= COLUMNS_MOST && begins(table, fields, count)) || table->count == 0) return;
  if (count == table->count)
    add_row(table, fields);
  else
    not_understood(table);
}

bool admin_table_read(admin_rows *rows, const char *input, size_t length, admin_unread *unread) {
  admin_table table = {.rows = rows, .unread = unread};
  const char *end = input + length;
  for (const char *at = input; at < end;) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t size = (size_t)((newline ? newline : end) - at);
    read_line(&table, at, size > 0 && at[size - 1] == '\r' ? size - 1 : size);
    at += size + 1;
    if (!newline) break;
  }
  return table.count > 0;
}
