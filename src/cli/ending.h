/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Ending a command whose lock is lost, or about to be: TERM to its family, then KILL at a time, until nothing of it is
 * left. Both the program and its guard do it. */
#ifndef CLI_ENDING_H
#define CLI_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/family.h"

typedef struct cli_ending {
  int64_t kill_at; /* of al_system_now() */
  bool has_killed;
  int64_t pause, look_at; /* when, and after which pause, it looks next whether something is left */
} cli_ending;

/* Begins: TERM now, unless kill_at has come. Members that are stopped are continued, so that TERM reaches them. */
void cli_ending_begin(cli_ending *ending, const cli_family *family, int64_t now, int64_t kill_at);

/* As that, but TERM was sent before. */
void cli_ending_take_over(cli_ending *ending, int64_t now, int64_t kill_at);

/* Does what is due. Returns true if nothing of the family is left. */
bool cli_ending_step(cli_ending *ending, const cli_family *family, int64_t now);

#endif
