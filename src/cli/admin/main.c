/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * amqp-lock-admin: administers locks, and shows who holds them. docs/man/amqp-lock-admin.1 says all of what it does. */
#include <signal.h>

#include "cli/admin/columns.h"
#include "cli/admin/input.h"
#include "cli/admin/listing.h"
#include "cli/admin/options.h"
#include "cli/admin/top.h"
#include "cli/admin/verbs.h"
#include "cli/common/descriptors.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

static int filter(const admin_options *options) {
  admin_rows rows = {0};
  if (!*options->files) {
    admin_print_sources(options->verb->name);
    return CLI_EXIT_USAGE;
  }
  for (char **file = options->files; *file; file++) admin_input_read(&rows, *file, options->json);
  if (rows.unread > 0) cli_warn(ADMIN_UNREAD, rows.unread);
  admin_listing listing = admin_listing_make(&rows, options->only);
  if (options->verb->id == ADMIN_HOLDERS)
    admin_print_holders(&listing, options->api);
  else if (options->json_output)
    admin_print_json(&listing);
  else
    admin_print_table(stdout, &listing);
  admin_listing_drop(&listing);
  admin_rows_drop(&rows);
  return 0;
}

int main(int argc, char **argv) {
  admin_options options;
  cli_descriptors_begin();
  signal(SIGXFSZ, SIG_IGN); /* a full file is an error that is told */
  cli_report_begin("amqp-lock-admin");
  admin_options_read(&options, argc, argv);
  switch (options.verb->id) {
    case ADMIN_LS:
    case ADMIN_HOLDERS:
      cli_finish(filter(&options));
    case ADMIN_TOP:
      cli_finish(admin_top_run(&options));
    default:
      cli_finish(admin_verb_run(&options));
  }
}
