/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"

#define OUTER_TICKETS "AMQP_LOCK_OUTER_TICKETS"
#define OUTER_TICKETS_SIZE 512 /* thirty locks, one in another */

/* ---- its environment -------------------------------------------------------------------------------------------- */

static void put(const char *name, const char *value) {
  if (setenv(name, value, true) != 0) cli_fail_no_memory();
}

static void put_number(const char *name, long long number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", number);
  put(name, text);
}

/* The processes of this command stay those of the commands around it, whose amqp-lock finds them by this list:
 * family.h. A job that ever again starts its successor must not make it longer and longer. */
void cli_command_keep_outer_tickets(void) {
  char list[OUTER_TICKETS_SIZE];
  const char *outer = getenv(OUTER_TICKETS), *ticket = getenv("AMQP_LOCK_TICKET");
  if (!ticket || strlen(ticket) >= sizeof list / 2)
    return; /* there is none around, or it is somebody's own */
  size_t room = sizeof list - strlen(ticket) - 2;
  if (!outer) outer = "";
  while (strlen(outer) > room) { /* without the oldest */
    outer += strcspn(outer, " ");
    outer += strspn(outer, " ");
  }
  snprintf(list, sizeof list, "%s%s%s", outer, *outer ? " " : "", ticket);
  put(OUTER_TICKETS, list);
}

/* Puts the tickets, or the slots, of several locks, with spaces between. */
static void put_list(const char *name, const cli_held *held, bool slots) {
  char list[CLI_HELD_MOST * 24] = "";
  for (int i = 0; i < held->count; i++) {
    size_t length = strlen(list);
    const char *space = i ? " " : "";
    if (slots)
      snprintf(list + length, sizeof list - length, "%s%d", space, al_lock_slot(held->locks[i]));
    else
      snprintf(list + length, sizeof list - length, "%s%s", space, al_lock_ticket(held->locks[i]));
  }
  put(name, list);
}

static void set_several(const cli_options *options, const cli_held *held) {
  unsetenv("AMQP_LOCK_TICKETS");
  unsetenv("AMQP_LOCK_SLOTS");
  if (held->count == 1) return;
  put_list("AMQP_LOCK_TICKETS", held, false);
  if (options->wishes_count > 1)
    put("AMQP_LOCK_KIND", "all");
  else if (al_lock_slot(cli_held_first(held)))
    put_list("AMQP_LOCK_SLOTS", held, true);
}

/* A variable that does not apply is removed: it may come from a command around this one. */
static void set_environment(const cli_options *options, const cli_held *held) {
  const al_lock *lock = cli_held_first(held);
  char acquired_at[64];
  snprintf(acquired_at, sizeof acquired_at, "%.6f", al_lock_acquired_at(lock));
  put("AMQP_LOCK_NAME", options->name);
  put("AMQP_LOCK_KIND", al_kind_name(al_lock_kind_of(lock)));
  put("AMQP_LOCK_TICKET", al_lock_ticket(lock));
  put("AMQP_LOCK_ACQUIRED_AT", acquired_at);
  unsetenv("AMQP_LOCK_SLOT");
  unsetenv("AMQP_LOCK_FENCE");
  unsetenv("AMQP_LOCK_PERMIT");
  set_several(options, held);
  if (al_lock_slot(lock) && options->wishes_count == 1) put_number("AMQP_LOCK_SLOT", al_lock_slot(lock));
  if (!options->fenced) return; /* permits of quorum queues have one without being asked */
  put_number("AMQP_LOCK_FENCE", al_lock_fence(lock));
  if (*al_lock_permit(lock)) put("AMQP_LOCK_PERMIT", al_lock_permit(lock));
}

/* ---- its process group ------------------------------------------------------------------------------------------ */

bool cli_command_in_foreground(void) {
  int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (terminal < 0) return false;
  bool is = tcgetpgrp(terminal) == getpgrp();
  close(terminal);
  return is;
}

/* ---- the child -------------------------------------------------------------------------------------------------- */

typedef struct plumbing {
  int gate[2], trouble[2];
} plumbing;

static bool make_pipes(plumbing *pipes) {
  if (pipe2(pipes->gate, O_CLOEXEC) < 0) return false;
  if (pipe2(pipes->trouble, O_CLOEXEC) == 0) return true;
  close(pipes->gate[0]);
  close(pipes->gate[1]);
  return false;
}

/* The library has replaced the descriptors of its connections by /dev/null here; they are close-on-exec. */
static _Noreturn void run(const plumbing *pipes, const cli_command *command, char **words,
                          const cli_signals *signals) {
  char byte;
  close(pipes->gate[1]);
  if (!command->shares_group) setpgid(0, 0);
  cli_signals_leave(signals); /* so that signals end a command that is not let through */
  if (read(pipes->gate[0], &byte, 1) != 1) _exit(CLI_EXIT_CANNOT_RUN);
  execvp(words[0], words);
  int reason = errno;
  if (write(pipes->trouble[1], &reason, sizeof reason) < 0) _exit(CLI_EXIT_CANNOT_RUN);
  _exit(reason == ENOENT ? CLI_EXIT_NO_COMMAND : CLI_EXIT_CANNOT_RUN);
}

bool cli_command_fork(cli_command *command, const cli_options *options, const cli_held *held,
                      const cli_signals *signals) {
  plumbing pipes;
  if (!make_pipes(&pipes)) return false;
  set_environment(options, held);
  command->shares_group = options->foreground || cli_command_in_foreground();
  command->pid = fork();
  if (command->pid == 0) run(&pipes, command, options->command, signals);
  int reason = errno;
  if (command->pid > 0 && !command->shares_group)
    command->shares_group = setpgid(command->pid, command->pid) < 0;
  close(pipes.gate[0]);
  close(pipes.trouble[1]);
  command->gate = pipes.gate[1];
  command->trouble = pipes.trouble[0];
  if (command->pid > 0) return true;
  close(command->gate);
  close(command->trouble);
  errno = reason;
  return false;
}

int cli_command_execute(cli_command *command) {
  int reason = 0;
  if (write(command->gate, "", 1) < 0) reason = errno;
  close(command->gate);
  while (read(command->trouble, &reason, sizeof reason) < 0 && errno == EINTR) continue;
  close(command->trouble);
  return reason;
}
