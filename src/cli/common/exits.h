/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Exit statuses, by sysexits.h where that has one. */
#ifndef CLI_COMMON_EXITS_H
#define CLI_COMMON_EXITS_H

#include "amqplocks.h"

enum {
  CLI_EXIT_USAGE = 64,
  CLI_EXIT_NOT_FOUND = 66,
  CLI_EXIT_UNAVAILABLE = 69,
  CLI_EXIT_SOFTWARE = 70,
  CLI_EXIT_CONFLICT = 75, /* not had in time; -E */
  CLI_EXIT_LOST = 76,     /* --lost-exit-code */
  CLI_EXIT_DENIED = 77,
  CLI_EXIT_CONFIG = 78,
  CLI_EXIT_EXPIRED = 124, /* --at-most; that of timeout(1) */
  CLI_EXIT_CANNOT_RUN = 126,
  CLI_EXIT_NO_COMMAND = 127,
  CLI_EXIT_SIGNAL = 128 /* plus the signal */
};

/* The status for a failure. AL_URL, a text of the command line or a file, is CLI_EXIT_CONFIG; a caller that reads it
 * from the command line uses CLI_EXIT_USAGE. */
int cli_exit_of(al_code code);

/* Ends the program by a signal, so that a shell sees that; as process 1, which cannot be ended so, with 128 plus its
 * number. May be called in a handler. */
_Noreturn void cli_exit_by_signal(int signal);

#endif
