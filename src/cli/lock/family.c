/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/family.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/lock/processes.h"
#include "cli/lock/signals.h"

/* Memory that is never touched costs nothing. The program and the guard have one each. */
static cli_processes processes;
static bool is_member[CLI_PROCESSES_MOST];

void cli_family_begin(cli_family *family, pid_t command, bool has_group, const char *ticket) {
  cli_process process;
  *family = (cli_family){.command = command,
                         .has_group = has_group,
                         .session = getsid(0),
                         .program = getpid(),
                         .pidfd = cli_pidfd_open(command)};
  if (cli_processes_are_shown() && cli_process_read(command, &process)) family->started = process.started;
  snprintf(family->ticket, sizeof family->ticket, "AMQP_LOCK_TICKET=%s", ticket);
  snprintf(family->outer_ticket, sizeof family->outer_ticket, "AMQP_LOCK_OUTER_TICKETS=%s", ticket);
}

bool cli_family_command_ended(const cli_family *family) {
  cli_process process;
  struct pollfd one = {.fd = family->pidfd, .events = POLLIN};
  if (family->pidfd >= 0) return poll(&one, 1, 0) == 1;
  if (family->started == 0) return kill(family->command, 0) < 0 && errno == ESRCH;
  return !cli_process_read(family->command, &process) || process.started != family->started ||
         process.state == 'Z';
}

bool cli_family_lives_by_group(const cli_family *family) { return family->started == 0; }

/* ---- who belongs to it ------------------------------------------------------------------------------------------ */

/* The group keeps its number while it has members. A later group of the same number is of another session, unless a
 * command of this very session got the number: then it began after the command, as members do. */
static bool is_in_group(const cli_family *family, const cli_process *one) {
  return family->has_group && one->group == family->command && one->session == family->session;
}

/* Children that the program had before it became this program, by exec, began before the command. */
static bool is_child(const cli_family *family, const cli_process *one) {
  if (one->pid == family->command) return one->started == family->started;
  return one->parent == family->program;
}

static bool is_candidate(const cli_family *family, const cli_process *one) {
  return one->started >= family->started && one->state != 'Z' && one->state != 'X' &&
         one->pid != family->guard && one->pid != family->program && one->pid != getpid();
}

static bool is_first_member(const cli_family *family, const cli_process *one) {
  return is_in_group(family, one) || is_child(family, one) ||
         cli_process_has(one->pid, family->ticket, family->outer_ticket);
}

static void mark_first_members(const cli_family *family) {
  for (size_t i = 0; i < processes.count; i++) {
    const cli_process *one = &processes.all[i];
    is_member[i] = is_candidate(family, one) && is_first_member(family, one);
  }
}

static bool has_member_as_parent(const cli_process *one) {
  const cli_process *parent = cli_processes_find(&processes, one->parent);
  return parent && is_member[parent - processes.all] && parent->started <= one->started;
}

/* A child usually has a higher number than its parent, so few passes find all. */
static void mark_descendants(const cli_family *family) {
  bool found;
  do {
    found = false;
    for (size_t i = 0; i < processes.count; i++) {
      const cli_process *one = &processes.all[i];
      if (is_member[i] || !is_candidate(family, one) || !has_member_as_parent(one)) continue;
      is_member[i] = found = true;
    }
  } while (found);
}

/* ---- signalling it ---------------------------------------------------------------------------------------------- */

static void signal_command(const cli_family *family, int signal) {
  if (family->pidfd < 0 || cli_pidfd_signal(family->pidfd, signal) < 0) {
    if (!cli_family_command_ended(family)) kill(family->command, signal);
  }
}

void cli_family_pass_on(const cli_family *family, int signal) {
  if (family->has_group && !cli_family_command_ended(family))
    kill(-family->command, signal);
  else
    signal_command(family, signal);
}

/* A group that the command does not lead may have others in it. */
static size_t signal_led_group(const cli_family *family, int signal) {
  if (cli_family_command_ended(family)) return 0;
  if (signal) cli_family_pass_on(family, signal);
  if (cli_signals_gives_up(signal)) cli_family_pass_on(family, SIGCONT);
  return 1;
}

/* Where nothing can be looked at. The group outlives the command, its leader, and keeps its number while it has members.
 * It is looked at many times a second from before the command's end, so it is still the same group. */
static size_t signal_group(const cli_family *family, int signal) {
  if (!family->has_group) return signal_led_group(family, signal);
  if (kill(-family->command, signal) < 0 && errno == ESRCH) return 0;
  if (cli_signals_gives_up(signal)) kill(-family->command, SIGCONT);
  return 1;
}

/* Returns how many are left, as far as is known without the list. A shortage of descriptors or of memory passes, and
 * another look may find them. */
static size_t signal_unlisted(const cli_family *family, int signal) {
  size_t left = signal_group(family, signal);
  return processes.is_cut_short ? 1 : left;
}

size_t cli_family_signal(const cli_family *family, int signal) {
  size_t count = 0;
  if (family->started == 0) return signal_group(family, signal);
  if (!cli_processes_read(&processes)) count = signal_unlisted(family, signal);
  mark_first_members(family);
  mark_descendants(family);
  for (size_t i = 0; i < processes.count; i++) {
    if (!is_member[i]) continue;
    count++;
    if (signal) cli_process_signal(&processes.all[i], signal);
    if (cli_signals_gives_up(signal)) cli_process_signal(&processes.all[i], SIGCONT);
  }
  return count;
}
