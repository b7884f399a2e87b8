/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the command line of amqp-lock says. */
#ifndef CLI_LOCK_OPTIONS_H
#define CLI_LOCK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "amqplocks.h"
#include "cli/common/broker.h"
#include "cli/lock/wish.h"

typedef enum cli_on_lost { CLI_LOST_TERM, CLI_LOST_KILL, CLI_LOST_IGNORE } cli_on_lost;

typedef struct cli_options {
  /* which lock */
  const char *name; /* NAME, or the list of --all */
  al_lock_kind kind;
  bool has_kind;
  cli_wish wishes[CLI_WISHES_MOST]; /* in the order in which they are acquired */
  int wishes_count;
  int count;          /* slots or permits at once */
  int slots, permits; /* 0: do not create */
  bool quorum, fenced;
  /* acquiring it */
  bool has_timeout;
  int64_t timeout; /* AL_NEVER: for ever; 0: do not wait */
  int64_t poll;    /* -1: the library's default */
  int64_t settle;  /* nanoseconds; 0: not given */
  bool patient, fair, random, takes_over;
  int priority;
  int conflict_status;
  /* while it is held */
  bool hold, has_guard, foreground, notify;
  bool restarts; /* acquires the lock again when it was lost, and runs the command again */
  cli_on_lost on_lost;
  int64_t heartbeat;         /* nanoseconds */
  int64_t grace;             /* nanoseconds from TERM to KILL */
  int64_t lost_grace;        /* the same when the lock is lost; --on-lost kill: 0 */
  int64_t at_least, at_most; /* nanoseconds from the acquire on for which it is held; 0: not given */
  int lost_status;
  int revoke_signal;     /* 0: none */
  char **command;        /* ends with NULL */
  int status_fd;         /* -1: none */
  const char *held_file; /* NULL: none */
  cli_broker broker;
} cli_options;

/* Reads the command line. Ends the program for --help and --version, and with status 64 if something is wrong. */
void cli_options_read(cli_options *options, int argc, char **argv);

#endif
