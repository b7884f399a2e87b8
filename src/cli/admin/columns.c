/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/columns.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/common/report.h"

#define COLUMNS 7
#define SHOWN_MOST 64 /* characters of a text, which any user may have written */
#define SHOWN_SIZE (4 * SHOWN_MOST + sizeof "…")

/* A time that no calendar has is not known, either. */
const char *admin_print_time(int64_t since, char out[ADMIN_TIME_SIZE]) {
  struct tm parts;
  time_t seconds = (time_t)since;
  bool has_time =
      since >= 0 && since < INT64_C(253402300800) && gmtime_r(&seconds, &parts); /* the year 10000 */
  snprintf(out, ADMIN_TIME_SIZE, "-");
  if (has_time) strftime(out, ADMIN_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return out;
}

/* ---- texts for people ------------------------------------------------------------------------------------------- */

/* The character at `text`, which is UTF-8; `size` becomes the number of its bytes. */
static uint32_t character(const char *text, size_t *size) {
  unsigned char first = (unsigned char)*text;
  *size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t code = *size == 1 ? first : first & (0x7fu >> *size);
  for (size_t i = 1; i < *size; i++) code = code << 6 | ((unsigned char)text[i] & 0x3f);
  return code;
}

/* A mark that turns what stands beside it around, or that nobody sees. */
static bool is_mark(uint32_t code) {
  return code == 0xad || code == 0x61c || code == 0xfeff || (code >= 0x200b && code <= 0x200f) ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f);
}

/* Writes a text as it is shown: cut to SHOWN_MOST characters, and its marks as <U+202E>. Returns `out`. */
static const char *show(char out[SHOWN_SIZE], const char *text) {
  char *at = out, mark[16];
  for (int room = SHOWN_MOST; *text;) {
    size_t size;
    uint32_t code = character(text, &size);
    int length = is_mark(code) ? snprintf(mark, sizeof mark, "<U+%04X>", code) : 1;
    if (length > room) {
      at = stpcpy(at, "…");
      break;
    }
    memcpy(at, length > 1 ? mark : text, length > 1 ? (size_t)length : size);
    at += length > 1 ? (size_t)length : size;
    text += size;
    room -= length;
  }
  *at = '\0';
  return out;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

typedef struct admin_line {
  const char *fields[COLUMNS];
  char shown[COLUMNS][SHOWN_SIZE];
  char since[ADMIN_TIME_SIZE];
} admin_line;

static const char *field(const char *text) { return text && *text ? text : "-"; }

static void fill(admin_line *line, const admin_item *item) {
  const admin_row *row = item->row;
  bool is_summary = item->state == ADMIN_SUMMARY;
  const char *fields[COLUMNS] = {field(row->vhost),
                                 row->lock,
                                 item->what,
                                 is_summary ? "-" : field(row->holder),
                                 admin_print_time(is_summary ? -1 : row->since, line->since),
                                 is_summary ? "-" : field(row->ticket),
                                 is_summary ? "-" : field(item->connection)};
  for (int i = 0; i < COLUMNS; i++) line->fields[i] = show(line->shown[i], fields[i]);
}

/* Characters, not bytes; all texts are UTF-8. */
static int width(const char *text) {
  int count = 0;
  for (; *text; text++) count += (*text & 0xc0) != 0x80;
  return count;
}

static void print_line(FILE *out, const admin_line *line, const int *widths, int from) {
  for (int i = from; i < COLUMNS; i++) {
    bool is_last = i == COLUMNS - 1;
    fputs(line->fields[i], out);
    if (!is_last) fprintf(out, "%*s", widths[i] - width(line->fields[i]) + 2, "");
  }
  fputc('\n', out);
}

static bool has_vhosts(const admin_listing *listing) {
  for (size_t i = 1; i < listing->count; i++)
    if (strcmp(listing->list[i].row->vhost, listing->list[0].row->vhost) != 0) return true;
  return false;
}

void admin_print_table(FILE *out, const admin_listing *listing) {
  static const admin_line heading = {
      .fields = {"VHOST", "NAME", "WHAT", "HOLDER", "SINCE", "TICKET", "CONNECTION"}};
  int widths[COLUMNS], from = has_vhosts(listing) ? 0 : 1;
  admin_line line;
  for (int i = 0; i < COLUMNS; i++) widths[i] = width(heading.fields[i]);
  for (size_t n = 0; n < listing->count; n++) {
    fill(&line, &listing->list[n]);
    for (int i = 0; i < COLUMNS; i++)
      if (width(line.fields[i]) > widths[i]) widths[i] = width(line.fields[i]);
  }
  print_line(out, &heading, widths, from);
  for (size_t n = 0; n < listing->count; n++) {
    fill(&line, &listing->list[n]);
    print_line(out, &line, widths, from);
  }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void set_text(json_t *object, const char *key, const char *text) {
  if (text && *text) json_object_set_new(object, key, json_string(text));
}

static void set_number(json_t *object, const char *key, int64_t number) {
  if (number >= 0) json_object_set_new(object, key, json_integer(number));
}

static json_t *object_of(const admin_item *item) {
  static const char *const states[] = {[ADMIN_HOLDS] = "holds",
                                       [ADMIN_WAITS] = "waits",
                                       [ADMIN_WOKEN] = "woken",
                                       [ADMIN_UNCLEAR] = "holds_or_waits"};
  json_t *object = json_object();
  set_text(object, "vhost", item->row->vhost);
  set_text(object, "name", item->row->lock);
  set_text(object, "kind", item->kind);
  if (item->state == ADMIN_SUMMARY) {
    set_number(object, "total", item->total);
    set_number(object, "free", item->free);
    return object;
  }
  set_text(object, "state", states[item->state]);
  if (item->row->slot > 0) set_number(object, "slot", item->row->slot);
  set_text(object, "what", item->what);
  set_text(object, "holder", item->row->holder);
  set_number(object, "since", item->row->since);
  set_text(object, "ticket", item->row->ticket);
  set_text(object, "connection", item->connection);
  return object;
}

void admin_print_json(const admin_listing *listing) {
  for (size_t n = 0; n < listing->count; n++) {
    json_t *object = object_of(&listing->list[n]);
    if (!object) cli_fail_no_memory();
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
  }
}

/* ---- the commands ----------------------------------------------------------------------------------------------- */

/* As one word for a shell. */
static void print_quoted(const char *text) {
  putchar('\'');
  for (; *text; text++) {
    if (*text == '\'')
      fputs("'\\''", stdout);
    else
      putchar(*text);
  }
  putchar('\'');
}

static void print_reason(const char *before, const admin_item *item) {
  char text[AL_NAME_SIZE + 192], lock[SHOWN_SIZE];
  snprintf(text, sizeof text, "%sclosed by an operator for %s: %s", before, show(lock, item->row->lock),
           item->what);
  print_quoted(text);
}

/* As a part of a URL. */
static char *escape_url(const char *text) {
  char *out = calloc(3, strlen(text) + 1), *at = out;
  if (!out) cli_fail_no_memory();
  for (; *text; text++) {
    bool is_plain =
        (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
    at += is_plain ? (*at = *text, 1) : sprintf(at, "%%%02X", (unsigned char)*text);
  }
  return out;
}

static bool is_pid(const char *connection) {
  return connection[0] == '<' && connection[strlen(connection) - 1] == '>';
}

static void print_api(const admin_item *item, const char *api) {
  char *name = escape_url(item->connection);
  char *url = malloc(strlen(api) + strlen(name) + sizeof "/connections/");
  if (!url) cli_fail_no_memory();
  sprintf(url, "%s/connections/%s", api, name);
  fputs("curl -sSf --netrc-optional -X DELETE -H ", stdout);
  print_reason("X-Reason: ", item);
  putchar(' ');
  print_quoted(url);
  putchar('\n');
  free(url);
  free(name);
}

/* The JSON of rabbitmqctl has "#PID<…>", a number that only that very rabbitmqctl knew. */
static void print_command(const admin_item *item, const char *api) {
  if (!item->connection) {
    puts("# its connection is not told: add the list of consumers, and that of channels; or it has ended "
         "meanwhile");
  } else if (strncmp(item->connection, "#PID", 4) == 0) {
    puts("# rabbitmqctl --formatter json does not tell its connection: leave the formatter out");
  } else if (is_pid(item->connection)) {
    fputs("rabbitmqctl close_connection ", stdout);
    print_quoted(item->connection);
    putchar(' ');
    print_reason("", item);
    putchar('\n');
  } else {
    print_api(item, api);
  }
}

void admin_print_holders(const admin_listing *listing, const char *api) {
  admin_line line;
  for (size_t n = 0; n < listing->count; n++) {
    if (listing->list[n].state != ADMIN_HOLDS) continue;
    fill(&line, &listing->list[n]);
    printf("# %s, %s: held by %s, since %s, ticket %s\n", line.fields[1], line.fields[2], line.fields[3],
           line.fields[4], line.fields[5]);
    print_command(&listing->list[n], api);
  }
}

void admin_print_sources(const char *verb) {
  fprintf(
      stderr,
      "Pipe the lists of the broker into \"amqp-lock-admin %s -\". On the broker's machine (for a virtual "
      "host: -p VHOST):\n"
      "\n"
      "  { rabbitmqctl -q list_queues name arguments owner_pid consumers messages messages_ready\n"
      "    rabbitmqctl -q list_consumers queue_name channel_pid consumer_tag active arguments\n"
      "    rabbitmqctl -q list_channels pid connection messages_unacknowledged; } | amqp-lock-admin %s -\n"
      "\n"
      "Elsewhere, with the management plugin (%%2F is the virtual host /):\n"
      "\n"
      "  curl -sfu USER http://localhost:15672/api/queues/%%2F http://localhost:15672/api/consumers/%%2F \\\n"
      "    http://localhost:15672/api/channels | amqp-lock-admin %s --json -\n"
      "\n"
      "The first list alone tells who holds mutexes, slots, and readers-writer locks.\n"
      "\"amqp-lock-admin holders --lock NAME -\" prints the commands that close the holders' connections.\n",
      verb, verb, verb);
}
