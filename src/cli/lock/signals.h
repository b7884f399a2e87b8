/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Signals.
 *
 *   waiting   TERM, INT, HUP and QUIT end the program at once, in the handler: the broker frees what it had claimed.
 *             (A wait inside of the library may connect, for seconds, and the program must not seem deaf meanwhile.)
 *             USR1, USR2, ALRM and WINCH are for a command that does not run yet, and are dropped.
 *   holding   these, and those that are passed on, are blocked and read from a descriptor.
 *
 * Signals that were ignored when the program began stay ignored, as by nohup(1). A command gets the mask and the
 * dispositions that the program began with. */
#ifndef CLI_LOCK_SIGNALS_H
#define CLI_LOCK_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>

#define CLI_SIGNALS_SET 5 /* so many get another disposition at the beginning */

typedef struct cli_signals {
  sigset_t mask; /* as the program found it */
  struct sigaction found[CLI_SIGNALS_SET];
  int fd; /* of signalfd(); -1 while waiting */
} cli_signals;

/* Waiting begins. */
void cli_signals_begin(cli_signals *signals);

/* `status_fd` gets a line about a signal that gives up; -1: none. */
void cli_signals_tell(int status_fd);

/* Waiting begins again, after holding. A signal that gives up and has come by now ends the program. */
void cli_signals_wait(cli_signals *signals);

/* Blocks the signals that give up; returns the mask for cli_signals_restore(). */
sigset_t cli_signals_defer(void);
void cli_signals_restore(const sigset_t *mask);

/* Holding begins. Returns false if there is no descriptor left. */
bool cli_signals_hold(cli_signals *signals);

/* Returns the next signal, or false if there is none. */
bool cli_signals_next(const cli_signals *signals, struct signalfd_siginfo *info);

/* In a child: restores mask and dispositions, as a command gets them. */
void cli_signals_leave(const cli_signals *signals);

/* True for TERM, INT, HUP and QUIT. */
bool cli_signals_gives_up(int signal);

#endif
