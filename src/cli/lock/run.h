/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Running the command while the lock is held. */
#ifndef CLI_LOCK_RUN_H
#define CLI_LOCK_RUN_H

#include "cli/lock/held.h"
#include "cli/lock/news.h"
#include "cli/lock/signals.h"

/* How it ended. */
typedef struct cli_outcome {
  int status;    /* the exit status */
  int signal;    /* the program dies of this signal; 0: it exits */
  bool was_lost; /* the lock was lost, and that was told */
  bool gave_up;  /* somebody has asked the program to end, by a signal */
  bool has_run;  /* a command has run, and has ended */
} cli_outcome;

/* Runs the command until it has ended; if the lock is lost, until nothing of its family is left. */
cli_outcome cli_run(al_session *session, const cli_held *held, const cli_options *options,
                    const cli_signals *signals, cli_news *news);

#endif
