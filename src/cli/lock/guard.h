/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The guard: a second process that ends the command when the program cannot, because it was killed or stopped, or because
 * the machine was too busy for it.
 *
 * The program writes into a page that both share until when the lock is certain; it cannot fall behind there, as in a
 * pipe. A pipe tells the guard that the program has ended. The guard is in a session of its own, where no signal of a
 * terminal reaches it, and blocks signals. It keeps the connections to the broker open, so the broker gives the lock to
 * nobody while the guard ends the command: until it has ended, or until the broker misses the heartbeats of a program
 * that is no more. That is what the times are for.
 *
 *   watching   TERM is due a grace before the certainty ends. If that has passed already, KILL is due at once.
 *   ending     TERM was sent, by the guard or by the program, which then tells when KILL is due.
 *   done       the command had ended by itself, or nothing of its family is left: the guard ends.
 *
 * A program whose command has ended kills the guard. What the command has left behind then lives on. */
#ifndef CLI_LOCK_GUARD_H
#define CLI_LOCK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "amqplocks.h"
#include "cli/lock/command.h"
#include "cli/lock/family.h"

/* TERM comes this much earlier than the grace asks for, so that KILL comes before the certainty ends. */
#define CLI_GUARD_SPARE (AL_SECOND / 10)

typedef struct cli_guard_page {
  _Atomic int64_t certain_until; /* as it was last known */
  _Atomic int64_t kill_at;       /* the program has sent TERM, and sends KILL then; 0: not yet */
  _Atomic bool has_acted;        /* the guard has sent a signal */
} cli_guard_page;

typedef struct cli_guard {
  pid_t pid; /* 0: there is none */
  int alive; /* the program's end of the pipe */
  cli_guard_page *page;
} cli_guard;

/* Forks the guard of `family`, that of `command`, and enters it there. `grace` is at most one heartbeat. The guard
 * removes `held_file` when the program cannot; NULL: there is none. The command is forked, and not let through its gate
 * yet. Returns false if there is no memory, process or descriptor left; errno says why. */
bool cli_guard_begin(cli_guard *guard, al_session *session, int64_t certain_until, const cli_command *command,
                     cli_family *family, int64_t grace, const char *held_file);

/* Tells the guard until when the lock is certain. */
void cli_guard_renew(cli_guard *guard, int64_t certain_until);

/* Tells it that the program has sent TERM, and sends KILL at that time. */
void cli_guard_tell_ending(cli_guard *guard, int64_t kill_at);

/* True if the guard has begun to end the command. */
bool cli_guard_has_acted(const cli_guard *guard);

/* The program has waited for the guard, which has ended. */
void cli_guard_gone(cli_guard *guard);

/* Ends the guard. */
void cli_guard_end(cli_guard *guard);

#endif
