/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Ending a command whose lock is lost, or about to be: TERM to its family, then KILL at a time, until nothing of it is
 * left. Both the program and its guard do it. */
#ifndef CLI_LOCK_ENDING_H
#define CLI_LOCK_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lock/family.h"

typedef struct cli_ending {
  int64_t kill_at; /* of al_system_now() */
  bool has_killed;
  int64_t pause, look_at; /* when, and after which pause, it looks next whether something is left */
} cli_ending;

/* When KILL is due for a loss that is noticed now: after the grace, and at `latest` if that is earlier. A time in the
 * past, as after a suspension of the system: another client may be in, and KILL is due at once. */
int64_t cli_ending_kill_at(int64_t now, int64_t grace, int64_t latest);

/* Begins: TERM now, unless kill_at has come. */
void cli_ending_begin(cli_ending *ending, const cli_family *family, int64_t now, int64_t kill_at);

/* As that, but TERM was sent before. */
void cli_ending_take_over(cli_ending *ending, int64_t now, int64_t kill_at);

/* Does what is due. Returns true if nothing of the family is left. */
bool cli_ending_step(cli_ending *ending, const cli_family *family, int64_t now);

#endif
