/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/top.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/admin/api.h"
#include "cli/admin/columns.h"
#include "cli/admin/deadlock.h"
#include "cli/admin/http.h"
#include "cli/admin/screen.h"
#include "cli/admin/source.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

typedef struct admin_top {
  const admin_options *options;
  admin_api *api;
  bool has_screen;
  size_t unread; /* rows that could not be read */
  bool told_unread, told_hidden;
  char *table;                   /* the last one, with its heading; NULL: there was none yet */
  al_code code;                  /* of the last reading */
  char message[AL_MESSAGE_SIZE]; /* of a code other than AL_OK */
} admin_top;

/* ---- texts ------------------------------------------------------------------------------------------------------ */

static void print_heading(FILE *out, const admin_top *top, const admin_listing *listing) {
  char now[ADMIN_TIME_SIZE];
  size_t holding = 0, waiting = 0;
  for (const admin_item *item = NULL; (item = admin_listing_next(listing, item));) {
    bool waits = admin_item_waits(item);
    holding += item->state == ADMIN_HOLDS && !waits;
    waiting += waits;
  }
  fprintf(out, "%s  %s  %zu hold, %zu wait\n\n", admin_print_time((int64_t)time(NULL), now),
          admin_api_address(top->api), holding, waiting);
}

/* The caller frees it. */
static char *table_of(const admin_top *top, const admin_listing *listing) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) cli_fail_no_memory();
  print_heading(out, top, listing);
  admin_print_table(out, listing);
  if (fclose(out) != 0) cli_fail_no_memory();
  return text;
}

/* ---- what is shown ---------------------------------------------------------------------------------------------- */

/* What is wrong stands above the table, which is then an old one: its heading tells its time. */
static void draw(const admin_top *top) {
  char notes[2 * AL_MESSAGE_SIZE + 128] = "";
  const char *hidden = admin_api_hidden(top->api);
  if (top->code != AL_OK) snprintf(notes, sizeof notes, "%s; asking again\n", top->message);
  size_t length = strlen(notes);
  if (hidden) snprintf(notes + length, sizeof notes - length, "%s\n", hidden);
  length = strlen(notes);
  if (top->unread > 0) snprintf(notes + length, sizeof notes - length, ADMIN_UNREAD "\n", top->unread);
  admin_screen_draw(notes, top->table ? top->table : "");
}

/* Where there is no screen, a failure is told once, as long as its code stays. */
static void print(const admin_top *top, al_code before) {
  if (top->code == AL_OK)
    printf("%s\n", top->table);
  else if (top->code != before)
    cli_error("%s; asking again", top->message);
  fflush(stdout);
}

/* Each once. */
static void warn_of_hidden(admin_top *top) {
  const char *hidden = admin_api_hidden(top->api);
  if (top->unread > 0 && !top->told_unread) cli_warn(ADMIN_UNREAD, top->unread);
  if (hidden && !top->told_hidden) cli_warn("%s", hidden);
  top->told_unread = top->told_unread || top->unread > 0;
  top->told_hidden = top->told_hidden || hidden;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void read_table(admin_top *top) {
  admin_rows rows = {0};
  top->code = admin_api_read(top->api, &rows, top->message);
  if (top->code == AL_OK) {
    admin_listing listing = admin_listing_make(&rows, top->options->only);
    admin_deadlocks_find(&listing);
    top->unread = rows.unread;
    free(top->table);
    top->table = table_of(top, &listing);
    admin_listing_drop(&listing);
  }
  admin_rows_drop(&rows);
}

/* Before the first table the address may be wrong. After it, whatever is there now is there for a while: a proxy's
 * page, or a node that starts. A password that has become wrong stays wrong, and asking again may lock the user out. */
static bool is_for_good(const admin_top *top) {
  bool is_passing = top->code == AL_OK || top->code == AL_UNREACHABLE || top->code == AL_UNAVAILABLE;
  return top->code == AL_AUTH || top->code == AL_REFUSED || (!is_passing && !top->table);
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

static void ignore(int signal) { (void)signal; }

/* Draws again when the terminal gets another size. */
static void pause_between(const admin_top *top) {
  int64_t until = al_system_now() + top->options->interval;
  for (int64_t left; (left = until - al_system_now()) > 0;) {
    int64_t most = left < AL_SECOND ? left : AL_SECOND;
    bool is_signalled = poll(NULL, 0, (int)(most / (AL_SECOND / 1000)) + 1) < 0;
    if (is_signalled && top->has_screen) draw(top);
  }
}

static int watch(admin_top *top) {
  al_code before;
  if (top->has_screen) sigaction(SIGWINCH, &(struct sigaction){.sa_handler = ignore}, NULL);
  for (;; pause_between(top)) {
    before = top->code;
    read_table(top);
    if (is_for_good(top)) break;
    if (top->has_screen) {
      draw(top);
    } else {
      warn_of_hidden(top);
      print(top, before);
    }
    if (ferror(stdout)) return 0; /* the caller tells it */
  }
  cli_error("%s", top->message);
  return cli_exit_of(top->code);
}

int admin_top_run(admin_options *options) {
  if (!admin_http_exists) {
    cli_error("the management API: %s", ADMIN_HTTP_NONE);
    return CLI_EXIT_SOFTWARE;
  }
  if (!options->api) {
    cli_broker_settle(&options->broker, "amqp-lock-admin");
    options->api = admin_source_address(options, 0);
  }
  admin_top top = {.options = options, .api = admin_api_new(options->api, admin_source_timeout(options))};
  top.has_screen = admin_screen_is_there();
  int status = watch(&top);
  admin_api_drop(top.api);
  free(top.table);
  return status;
}
