/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The processes of this pid namespace, as /proc shows them. No memory is taken: see family.h. */
#ifndef CLI_LOCK_PROCESSES_H
#define CLI_LOCK_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct cli_process {
  pid_t pid, parent, group, session;
  char state; /* as in /proc: 'Z' has ended, 'T' is stopped */
  unsigned long long started;
} cli_process;

#define CLI_PROCESSES_MOST 32768

/* The processes, by ascending pid. */
typedef struct cli_processes {
  size_t count;
  bool is_cut_short; /* for lack of descriptors or of memory */
  cli_process all[CLI_PROCESSES_MOST];
} cli_processes;

/* True if /proc shows this process by the number that it has itself. */
bool cli_processes_are_shown(void);

/* Reads them all. Those that begin or end meanwhile may be missing. Returns false if others may be, too: there are more
 * than CLI_PROCESSES_MOST, or the system lacks something. */
bool cli_processes_read(cli_processes *processes);

/* True if the process has this name (15 bytes of it), as /proc shows it. */
bool cli_process_is_named(pid_t pid, const char *name);

/* Reads one. Returns false if there is no such process (errno ENOENT, ESRCH), or it cannot be read now. */
bool cli_process_read(pid_t pid, cli_process *process);

/* Returns the process of this number, or NULL. */
const cli_process *cli_processes_find(const cli_processes *processes, pid_t pid);

/* True if the process began with one of these, "NAME=word", in its environment, and it may be read. The variable's value
 * may have several words, with spaces between them. */
bool cli_process_has(pid_t pid, const char *assignment, const char *other);

/* Signals this process, and not another one that has its number by now. */
void cli_process_signal(const cli_process *process, int signal);

/* pidfd_open(2), pidfd_send_signal(2). */
int cli_pidfd_open(pid_t pid);
int cli_pidfd_signal(int pidfd, int signal);

#endif
