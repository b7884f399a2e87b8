/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/nested.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"
#include "cli/lock/processes.h"

/* Returns the nearest amqp-lock among the parents of this process, or 0. */
static pid_t find_outer(void) {
  cli_process process;
  for (pid_t pid = getppid(); pid > 1 && cli_process_read(pid, &process); pid = process.parent)
    if (cli_process_is_named(pid, "amqp-lock")) return pid;
  return 0;
}

/* Of locks of one name. Slots and permits are several. */
static bool excludes(int held, al_lock_kind wanted) {
  if (held == AL_LOCK_READ) return wanted == AL_LOCK_WRITE;
  if (held == AL_LOCK_WRITE) return wanted == AL_LOCK_WRITE || wanted == AL_LOCK_READ;
  return held == (int)wanted && (wanted == AL_LOCK_MUTEX || wanted == AL_LOCK_FAST_MUTEX);
}

void cli_nested_check(const cli_options *options) {
  const char *name = getenv("AMQP_LOCK_NAME"), *kind = getenv("AMQP_LOCK_KIND");
  pid_t outer = name && kind ? find_outer() : 0;
  if (outer == 0) return;
  for (int i = 0; i < options->wishes_count; i++) {
    const cli_wish *wish = &options->wishes[i];
    if (strcmp(wish->name, name) != 0 || !excludes(al_kind_named(kind), wish->kind)) continue;
    cli_error("deadlock: this runs in the command of an amqp-lock (process %d) that holds \"%s\"; if that "
              "lock is another broker's, unset AMQP_LOCK_NAME",
              (int)outer, name);
    exit(CLI_EXIT_USAGE);
  }
}
