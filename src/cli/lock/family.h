/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The family of a command: all its processes, which must end before another client may have the lock.
 *
 *   members   the processes of the command's process group, if it has one of its own;
 *             the command, and what descends from it;
 *             children that this program, a subreaper, got because their parents have ended;
 *             processes with this lock's AMQP_LOCK_TICKET in the environment they began with: daemons, and children of
 *             such parents once this program is gone, too. If they are those of another amqp-lock inside this one,
 *             they have that one's ticket there, and this one's in AMQP_LOCK_OUTER_TICKETS.
 *   not found descendants that cleared their environment and lost their parents, once this program is killed as well;
 *             processes of other users are found, but may not be signalled.
 *
 * Where /proc is missing, or belongs to another pid namespace, the group alone is signalled.
 *
 * The number of a process may be used again. So a process is signalled through a pidfd, after a second look at its start
 * time. The functions take no memory and no locks: the guard (guard.h) is the child of a process with threads. */
#ifndef CLI_LOCK_FAMILY_H
#define CLI_LOCK_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CLI_TICKET_SIZE 64

typedef struct cli_family {
  pid_t command;
  unsigned long long
      started;    /* the command's start time, in ticks since the system began; 0: /proc tells nothing */
  int pidfd;      /* of the command; -1: the kernel has none */
  bool has_group; /* the command's own group, which has its number */
  pid_t session;  /* of the program and the command */
  pid_t program, guard;               /* these are no members; guard 0: none */
  char ticket[CLI_TICKET_SIZE];       /* "AMQP_LOCK_TICKET=…" */
  char outer_ticket[CLI_TICKET_SIZE]; /* "AMQP_LOCK_OUTER_TICKETS=…" */
} cli_family;

/* Describes the family of `command`, which was just forked, and is a child. */
void cli_family_begin(cli_family *family, pid_t command, bool has_group, const char *ticket);

/* Sends a signal to all members; 0: to none. TERM, INT, HUP and QUIT are followed by CONT, so that they reach members
 * that are stopped. Returns how many members there are that have not ended. */
size_t cli_family_signal(const cli_family *family, int signal);

/* Sends a signal to the command, or to its group if it has one. */
void cli_family_pass_on(const cli_family *family, int signal);

/* True where /proc is missing. Children must then be waited for at once: the group counts those that were not. */
bool cli_family_lives_by_group(const cli_family *family);

/* True if the command itself has ended, also while its parent has not waited for it. */
bool cli_family_command_ended(const cli_family *family);

#endif
