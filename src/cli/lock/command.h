/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Starting the command. It is forked first, and executed later: between the two the guard begins, so that the command
 * never runs without it. */
#ifndef CLI_LOCK_COMMAND_H
#define CLI_LOCK_COMMAND_H

#include "cli/lock/family.h"
#include "cli/lock/held.h"
#include "cli/lock/options.h"
#include "cli/lock/signals.h"

typedef struct cli_command {
  pid_t pid;
  bool shares_group; /* with this program: in a terminal's foreground, by --foreground, without setpgid() */
  int gate;          /* a byte in it lets the command begin */
  int trouble;       /* gets errno, if it cannot be executed */
} cli_command;

/* Puts the ticket of an amqp-lock around this one into the list of outer tickets, once, before the first command. */
void cli_command_keep_outer_tickets(void);

/* Forks. The command waits; if this program ends meanwhile, it is not executed. Returns false if there is no process or
 * descriptor left; errno says why. */
bool cli_command_fork(cli_command *command, const cli_options *options, const cli_held *held,
                      const cli_signals *signals);

/* True if this program is in the foreground of its terminal. */
bool cli_command_in_foreground(void);

/* Lets it be executed. Returns 0, or errno if it cannot be; it has then ended. */
int cli_command_execute(cli_command *command);

#endif
