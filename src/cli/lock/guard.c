/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The guard is the child of a process with threads, so it calls only what is allowed in a handler of a signal. */
#include "cli/lock/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common/descriptors.h"
#include "cli/lock/ending.h"

/* The program acts first, if it can. The spare before the end of the certainty is shared: the program kills at its
 * beginning, and the guard in its middle. */
#define BEHIND_PROGRAM (CLI_GUARD_SPARE / 2)

/* ---- in the guard ----------------------------------------------------------------------------------------------- */

typedef struct watch {
  cli_guard_page *page;
  cli_family family;
  int64_t grace;
  const char *held_file; /* to be removed; NULL: none */
  int alive;             /* the guard's end of the pipe */
  int timer;             /* -1: denied */
} watch;

/* When the guard has to act, if nothing is renewed. */
static int64_t due_at(const watch *self) {
  int64_t kill_at = self->page->kill_at;
  if (kill_at) return kill_at + BEHIND_PROGRAM;
  return self->page->certain_until - self->grace - BEHIND_PROGRAM;
}

static struct timespec timespec_of(int64_t time) {
  if (time < 1) time = 1; /* 0 would disarm a timer */
  return (struct timespec){.tv_sec = time / AL_SECOND, .tv_nsec = time % AL_SECOND};
}

/* Waits until `until` has come, or `alive` is closed; -1: for `until` only. Returns true if it is closed. The timer
 * counts the time of a suspended system, which the time of a poll does not. It may be denied. */
static bool wait_until(const watch *self, int alive, int64_t until) {
  struct pollfd all[] = {{.fd = alive, .events = POLLIN}, {.fd = self->timer, .events = POLLIN}};
  struct itimerspec when = {.it_value = timespec_of(until)};
  struct timespec left = timespec_of(until - al_system_now());
  timerfd_settime(self->timer, TFD_TIMER_ABSTIME, &when, NULL);
  ppoll(all, 2, &left, NULL);
  return all[0].revents != 0;
}

/* The page may have been renewed meanwhile, so the time is read again after each wait. Returns whether the program has
 * ended. */
static bool watch_program(const watch *self) {
  for (;;) {
    int64_t due = due_at(self);
    int64_t at_most = al_system_now() + AL_SECOND; /* the page does not wake anybody */
    bool is_over = wait_until(self, self->alive, due < at_most ? due : at_most);
    if (is_over) return true;
    if (al_system_now() >= due_at(self)) return false;
  }
}

static void begin_ending(const watch *self, cli_ending *ending) {
  int64_t now = al_system_now(), told = self->page->kill_at;
  self->page->has_acted = true;
  if (told)
    cli_ending_take_over(ending, now, told);
  else
    cli_ending_begin(ending, &self->family, now,
                     cli_ending_kill_at(now, self->grace, self->page->certain_until - BEHIND_PROGRAM));
}

/* Once the program has ended, its number may become another process's. */
static void notice_parent(watch *self) {
  if (getppid() != self->family.program) self->family.program = -1;
}

static void end_command(watch *self) {
  cli_ending ending;
  notice_parent(self);
  begin_ending(self, &ending);
  while (!cli_ending_step(&ending, &self->family, al_system_now())) {
    wait_until(self, -1, ending.look_at);
    notice_parent(self);
  }
}

static _Noreturn void be_guard(watch *self) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  setsid();
  prctl(PR_SET_NAME, "amqp-lock-guard");
  self->family.guard = getpid();
  cli_descriptors_leave();
  watch_program(self);
  if (self->held_file) unlink(self->held_file);
  /* a command that has ended by itself leaves behind what it wants; an ending that has begun goes on */
  if (!cli_family_command_ended(&self->family) || self->page->kill_at) end_command(self);
  _exit(0);
}

/* ---- in the program --------------------------------------------------------------------------------------------- */

static cli_guard_page *make_page(void) {
  void *page = mmap(NULL, sizeof(cli_guard_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? NULL : page;
}

static bool fork_guard(cli_guard *guard, al_session *session, const cli_command *command, watch *self) {
  al_native_keep_in_child(session);
  guard->pid = fork();
  if (guard->pid == 0) {
    close(guard->alive);
    close(command->gate);
    close(command->trouble);
    be_guard(self);
  }
  int reason = errno;
  close(self->alive);
  if (self->timer >= 0) close(self->timer);
  if (guard->pid > 0) return true;
  guard->pid = 0;
  errno = reason;
  return false;
}

bool cli_guard_begin(cli_guard *guard, al_session *session, int64_t certain_until, const cli_command *command,
                     cli_family *family, int64_t grace, const char *held_file) {
  int alive[2];
  *guard = (cli_guard){.page = make_page(), .alive = -1};
  if (!guard->page || pipe2(alive, O_CLOEXEC) < 0) return false;
  watch self = {.page = guard->page,
                .family = *family,
                .grace = grace,
                .held_file = held_file,
                .alive = alive[0],
                .timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)};
  guard->alive = alive[1];
  guard->page->certain_until = certain_until;
  if (!fork_guard(guard, session, command, &self)) return false;
  family->guard = guard->pid;
  return true;
}

void cli_guard_renew(cli_guard *guard, int64_t certain_until) {
  if (guard->pid) guard->page->certain_until = certain_until;
}

void cli_guard_tell_ending(cli_guard *guard, int64_t kill_at) {
  if (guard->pid) guard->page->kill_at = kill_at;
}

bool cli_guard_has_acted(const cli_guard *guard) { return guard->page && guard->page->has_acted; }

void cli_guard_gone(cli_guard *guard) { guard->pid = 0; }

void cli_guard_end(cli_guard *guard) {
  if (!guard->pid) return;
  kill(guard->pid, SIGKILL);
  waitpid(guard->pid, NULL, 0);
  close(guard->alive);
  guard->pid = 0;
}
