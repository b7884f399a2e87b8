/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/columns.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/common/report.h"

#define COLUMNS 8
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
                                 is_summary ? "-" : field(row->user),
                                 is_summary ? "-" : field(row->connection)};
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

/* Each session of the circle waits for what the next one holds. */
static void print_deadlock(FILE *out, const admin_item *first) {
  char holder[SHOWN_SIZE], lock[SHOWN_SIZE];
  const admin_item *item = first;
  fputs("deadlock: ", out);
  do {
    fprintf(out, "%s waits for the %s %s of ", show(holder, field(item->row->holder)), item->kind,
            show(lock, item->row->lock));
    item = item->blocker;
    if (item != first) fprintf(out, "%s, ", show(holder, field(item->row->holder)));
  } while (item != first);
  fprintf(out, "%s\n", show(holder, field(item->row->holder)));
}

/* One line tells a circle, however many of its locks are shown. */
static bool is_first_of_circle(const admin_listing *listing, const admin_item *first) {
  for (const admin_item *item = first->blocker; item != first; item = item->blocker)
    if (item < first && admin_listing_next(listing, item - 1) == item) return false;
  return true;
}

static bool has_vhosts(const admin_listing *listing) {
  const admin_item *first = admin_listing_next(listing, NULL);
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));)
    if (strcmp(item->row->vhost, first->row->vhost) != 0) return true;
  return false;
}

void admin_print_table(FILE *out, const admin_listing *listing) {
  static const admin_line heading = {
      .fields = {"VHOST", "NAME", "WHAT", "HOLDER", "SINCE", "TICKET", "USER", "CONNECTION"}};
  int widths[COLUMNS], from = has_vhosts(listing) ? 0 : 1;
  admin_line line;
  for (int i = 0; i < COLUMNS; i++) widths[i] = width(heading.fields[i]);
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));) {
    fill(&line, item);
    for (int i = 0; i < COLUMNS; i++)
      if (width(line.fields[i]) > widths[i]) widths[i] = width(line.fields[i]);
  }
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));)
    if (item->blocker && is_first_of_circle(listing, item)) print_deadlock(out, item);
  print_line(out, &heading, widths, from);
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));) {
    fill(&line, item);
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

static void print_object(json_t *object) {
  if (!object) cli_fail_no_memory();
  json_dumpf(object, stdout, JSON_COMPACT);
  putchar('\n');
  json_decref(object);
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
  set_text(object, "user", item->row->user);
  set_text(object, "connection", item->row->connection);
  if (item->blocker) json_object_set_new(object, "deadlock", json_true());
  return object;
}

void admin_print_json(const admin_listing *listing) {
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));)
    print_object(object_of(item));
}

/* ---- one line ---------------------------------------------------------------------------------------------------- */

void admin_print_counts(const admin_listing *listing, const char *name, const char *kind, bool is_json) {
  bool is_rw = strcmp(kind, "read") == 0 || strcmp(kind, "write") == 0;
  char shown[SHOWN_SIZE];
  int holding = 0, waiting = 0;
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));) {
    bool waits = admin_item_waits(item), is_of_kind = strcmp(item->kind, kind) == 0;
    holding += item->state == ADMIN_HOLDS && !waits && is_of_kind;
    waiting += waits && (is_rw || is_of_kind);
  }
  if (!is_json) {
    printf("%s: %s, %d held, %d waiting\n", show(shown, name), kind, holding, waiting);
    return;
  }
  print_object(json_pack("{ss ss si si}", "name", name, "kind", kind, "held", holding, "waiting", waiting));
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

/* Any client may have written the name. Debian's rabbitmqctl has a shell read its arguments again, in double quotes. */
static void print_reason(const char *before, const admin_item *item) {
  char text[AL_NAME_SIZE + 192], lock[SHOWN_SIZE];
  snprintf(text, sizeof text, "%sclosed by an operator for %s: %s", before, show(lock, item->row->lock),
           item->what);
  for (char *at = text; *(at += strcspn(at, "$`\\\""));) *at = '?';
  print_quoted(text);
}

char *admin_url_escape(const char *text) {
  char *out = calloc(3, strlen(text) + 1), *at = out;
  if (!out) cli_fail_no_memory();
  for (; *text; text++) {
    bool is_plain =
        (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
    at += is_plain ? (*at = *text, 1) : sprintf(at, "%%%02X", (unsigned char)*text);
  }
  return out;
}

static void print_curl(const admin_item *item, const char *api, const char *user) {
  char *name = admin_url_escape(item->row->connection), *url;
  if (asprintf(&url, "%s/connections/%s", api, name) < 0) cli_fail_no_memory();
  fputs(user ? "curl -sSf -u " : "curl -sSf --netrc-optional", stdout);
  if (user) print_quoted(user);
  fputs(" -X DELETE -H ", stdout);
  print_reason("X-Reason: ", item);
  putchar(' ');
  print_quoted(url);
  putchar('\n');
  free(url);
  free(name);
}

/* rabbitmqctl closes a connection by its pid, which it prints as that only in a table. */
static void print_ctl(const admin_item *item) {
  fputs("rabbitmqctl close_connection \"$(rabbitmqctl -q list_connections pid name | awk -F '\\t' -v name=",
        stdout);
  print_quoted(item->row->connection);
  fputs(" '$2 == name { print $1 }')\" ", stdout);
  print_reason("", item);
  putchar('\n');
}

/* Holders of permits and of fast mutexes cannot be asked. A name with marks would not be seen as it is. */
static void print_revoke(const admin_item *item) {
  char number[16] = "", shown[SHOWN_SIZE];
  const char *option = strcmp(item->kind, "mutex") == 0   ? "-m "
                       : strcmp(item->kind, "read") == 0  ? "-r "
                       : strcmp(item->kind, "write") == 0 ? "-W "
                                                          : "";
  bool is_slot = strcmp(item->kind, "slot") == 0;
  if (is_slot) snprintf(number, sizeof number, " %d", item->row->slot);
  bool is_plain = strcmp(show(shown, item->row->lock), item->row->lock) == 0;
  if ((!is_slot && !*option) || !is_plain) return;
  printf("# ask it first: amqp-lock-admin revoke %s%s", option, item->row->lock[0] == '-' ? "-- " : "");
  print_quoted(item->row->lock);
  printf("%s\n", number);
}

void admin_print_holders(const admin_listing *listing, const char *api, const char *user) {
  admin_line line;
  char text[sizeof line.shown];
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));) {
    if (item->state != ADMIN_HOLDS) continue;
    fill(&line, item);
    snprintf(text, sizeof text, "%s, %s: held by %s, since %s, ticket %s", line.fields[1], line.fields[2],
             line.fields[3], line.fields[4], line.fields[5]);
    fputs("# ", stdout);
    print_quoted(text); /* a zsh to which it is typed has no comments */
    putchar('\n');
    print_revoke(item);
    if (!item->row->connection)
      puts("# its connection is not told: the lists of consumers and channels do not have it");
    else if (api)
      print_curl(item, api, user);
    else
      print_ctl(item);
  }
}
