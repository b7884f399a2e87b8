/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/rows.h"

#include <stdlib.h>
#include <string.h>

#include "cli/common/report.h"

admin_row admin_row_new(admin_kind kind) {
  return (admin_row){.kind = kind, .since = -1, .messages = -1, .ready = -1, .unacked = -1, .active = -1};
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

/* How many bytes the character at `at` has, by its first byte; 0: it is none. */
static size_t character(const unsigned char *at, size_t left) {
  size_t size = *at < 0x80                   ? 1
                : *at >= 0xc2 && *at <= 0xdf ? 2
                : (*at & 0xf0) == 0xe0       ? 3
                : *at >= 0xf0 && *at <= 0xf4 ? 4
                                             : 0;
  if (size > left) return 0;
  for (size_t i = 1; i < size; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  if (size == 3 && ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f))) return 0;
  if (size == 4 && ((*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f))) return 0;
  return size;
}

static bool is_control(const unsigned char *at, size_t size) {
  return (size == 1 && (*at < ' ' || *at == 0x7f)) || (size == 2 && *at == 0xc2 && at[1] < 0xa0);
}

/* Copies as admin_row_text() does; returns false if something was replaced. `out` has room for `length` + 1 bytes. */
static bool copy_clean(char *out, const char *bytes, size_t length) {
  const unsigned char *at = (const unsigned char *)bytes, *end = at + length;
  bool is_clean = true;
  while (at < end) {
    size_t size = character(at, (size_t)(end - at));
    bool is_fine = size > 0 && !is_control(at, size);
    if (is_fine) memcpy(out, at, size);
    if (!is_fine) *out = '?';
    out += is_fine ? size : 1;
    at += size > 0 ? size : 1;
    is_clean = is_clean && is_fine;
  }
  *out = '\0';
  return is_clean;
}

void admin_row_text(char **text, const char *bytes, size_t length) {
  char *copy = malloc(length + 1);
  if (!copy) cli_fail_no_memory();
  copy_clean(copy, bytes, length);
  free(*text);
  *text = copy;
}

void admin_row_argument(admin_row *row, const char *key, const char *text, size_t length, int64_t number) {
  bool is_since =
      strcmp(key, row->kind == ADMIN_QUEUE ? "x-amqplocks-acquired-at" : "x-amqplocks-waiting-since") == 0;
  if (text && strcmp(key, "x-amqplocks-holder") == 0) admin_row_text(&row->holder, text, length);
  if (text && row->kind == ADMIN_QUEUE && strcmp(key, "x-amqplocks-ticket") == 0)
    admin_row_text(&row->ticket, text, length);
  if (!text && is_since) row->since = number;
  if (!text && strcmp(key, "x-amqplocks-retain") == 0) row->retain = number;
  if (!text && strcmp(key, "x-priority") == 0) row->priority = number;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void drop(admin_row *row) {
  free(row->vhost);
  free(row->queue);
  free(row->holder);
  free(row->ticket);
  free(row->connection);
  free(row->user);
  free(row->channel);
}

/* A queue of this library has a name of the AMQP length, in UTF-8 without control characters. */
static bool is_ours(admin_row *row, const char *queue, size_t length) {
  char clean[AL_NAME_SIZE];
  if (length >= sizeof clean || !copy_clean(clean, queue, length)) return false;
  row->part = al_queue_parse(clean, row->lock, &row->slot);
  return row->part != AL_QUEUE_OTHER;
}

void admin_rows_add(admin_rows *rows, admin_row *row, const char *queue, size_t length) {
  rows->has[row->kind] = true;
  if (row->kind != ADMIN_CHANNEL && !is_ours(row, queue, length)) {
    drop(row);
    return;
  }
  if (row->kind != ADMIN_CHANNEL) admin_row_text(&row->queue, queue, length);
  if (!row->vhost) admin_row_text(&row->vhost, "", 0);
  if (rows->count == rows->size) {
    size_t size = rows->size ? 2 * rows->size : 256;
    admin_row *list = reallocarray(rows->list, size, sizeof *list);
    if (!list) cli_fail_no_memory();
    rows->list = list;
    rows->size = size;
  }
  rows->list[rows->count++] = *row;
}

void admin_rows_drop(admin_rows *rows) {
  for (size_t i = 0; i < rows->count; i++) drop(&rows->list[i]);
  free(rows->list);
  *rows = (admin_rows){0};
}
