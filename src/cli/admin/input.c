/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/admin/json.h"
#include "cli/admin/table.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

#define INPUT_MOST ((size_t)1 << 30) /* bytes; a queue takes about 300 */

typedef struct admin_bytes {
  char *list;
  size_t length, size;
} admin_bytes;

static _Noreturn void refuse(const char *path, const char *why) {
  cli_error("%s: %s", strcmp(path, "-") == 0 ? "standard input" : path, why);
  exit(CLI_EXIT_USAGE);
}

static void make_room(admin_bytes *bytes, const char *path) {
  if (bytes->length < bytes->size) return;
  size_t size = bytes->size ? 2 * bytes->size : 65536;
  if (size > INPUT_MOST) refuse(path, "it has more than a gigabyte");
  char *list = realloc(bytes->list, size);
  if (!list) cli_fail_no_memory();
  bytes->list = list;
  bytes->size = size;
}

static admin_bytes read_all(const char *path) {
  admin_bytes bytes = {0};
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  if (!file) refuse(path, strerror(errno));
  do {
    make_room(&bytes, path);
    bytes.length += fread(bytes.list + bytes.length, 1, bytes.size - bytes.length, file);
  } while (!feof(file) && !ferror(file));
  if (ferror(file)) refuse(path, strerror(errno));
  if (!is_stdin) fclose(file);
  return bytes;
}

static bool looks_like_json(const admin_bytes *bytes) {
  size_t at = 0;
  while (at < bytes->length && bytes->list[at] && strchr(" \t\r\n", bytes->list[at])) at++;
  return at < bytes->length && (bytes->list[at] == '[' || bytes->list[at] == '{');
}

static void read_table(admin_rows *rows, const char *path, const admin_bytes *bytes) {
  admin_unread unread = {0};
  if (!admin_table_read(rows, bytes->list, bytes->length, &unread))
    refuse(
        path,
        "no line has the names of the columns, as \"rabbitmqctl -q list_queues name arguments …\" prints it "
        "(-s leaves it out)");
  if (unread.lines > 0)
    cli_warn("%s: %zu lines were not understood, the first is line %zu", path, unread.lines, unread.first);
}

void admin_input_read(admin_rows *rows, const char *path, bool is_json) {
  char why[AL_MESSAGE_SIZE];
  admin_bytes bytes = read_all(path);
  if (bytes.length == 0) refuse(path, "it is empty; did the command before it fail?");
  if (!is_json && !looks_like_json(&bytes))
    read_table(rows, path, &bytes);
  else if (!admin_json_read(rows, bytes.list, bytes.length, why))
    refuse(path, why);
  free(bytes.list);
}
