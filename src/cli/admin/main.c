/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * amqp-lock-admin: administers locks, and shows who holds them. docs/man/amqp-lock-admin.1 says all of what it does. */
#include <signal.h>
#include <stdio.h>

#include "cli/admin/columns.h"
#include "cli/admin/deadlock.h"
#include "cli/admin/options.h"
#include "cli/admin/source.h"
#include "cli/admin/top.h"
#include "cli/admin/verbs.h"
#include "cli/common/descriptors.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

#define LOCAL_API "http://localhost:15672/api" /* of JSON in files, unless --api is given */

/* The verbs that show what the lists of the broker tell. */
static int show(admin_options *options) {
  static const char *const kinds[] = {[ADMIN_MUTEX] = "mutex",
                                      [ADMIN_READERS] = "read",
                                      [ADMIN_WRITER] = "write",
                                      [ADMIN_FAST_MUTEX] = "fast_mutex"};
  admin_rows rows = {0};
  bool prints_commands = options->verb->id == ADMIN_HOLDERS;
  bool is_json = !prints_commands && (options->json_output || (options->json && !*options->files));
  admin_source_read(options, &rows);
  admin_source_hide_password(options);
  if (rows.unread > 0) cli_warn(ADMIN_UNREAD, rows.unread);
  admin_listing listing = admin_listing_make(&rows, options->name ? options->name : options->only);
  bool is_who = options->verb->id == ADMIN_WHO;
  admin_deadlocks_find(&listing);
  if (options->verb->id == ADMIN_STATUS)
    admin_print_counts(&listing, options->name, kinds[options->lock], is_json);
  else if (is_json)
    admin_print_json(&listing);
  else if (is_who && !admin_listing_next(&listing, NULL))
    printf("%s: no client holds it, and none waits (told by %s)\n", options->name,
           options->api ? options->api : "rabbitmqctl");
  else if (!prints_commands)
    admin_print_table(stdout, &listing);
  bool has_both = is_who && !is_json && admin_listing_next(&listing, NULL);
  if (has_both) putchar('\n');
  if (prints_commands || has_both)
    admin_print_holders(&listing,
                        rows.is_ctl    ? NULL
                        : options->api ? options->api
                                       : LOCAL_API,
                        options->api_user);
  admin_listing_drop(&listing);
  admin_rows_drop(&rows);
  return 0;
}

static bool reads_lists(const admin_options *options) {
  bool has_slots = options->lock == ADMIN_SEMAPHORE || options->lock == ADMIN_PERMITS;
  switch (options->verb->id) {
    case ADMIN_LS:
    case ADMIN_HOLDERS:
    case ADMIN_WHO:
      return true;
    case ADMIN_TOP:
      return options->once;
    default:
      return options->verb->id == ADMIN_STATUS && !has_slots;
  }
}

int main(int argc, char **argv) {
  admin_options options;
  cli_descriptors_begin();
  signal(SIGXFSZ, SIG_IGN); /* a full file is an error that is told */
  cli_report_begin("amqp-lock-admin");
  admin_options_read(&options, argc, argv);
  if (reads_lists(&options)) cli_finish(show(&options));
  cli_finish(options.verb->id == ADMIN_TOP ? admin_top_run(&options) : admin_verb_run(&options));
}
