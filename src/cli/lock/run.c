/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * One loop. The library's own thread keeps the lock meanwhile; so the loop waits for signals, for an alert of the library
 * and for the next time at which something is due, and nothing in it waits for the broker.
 *
 *   running    until the command has ended
 *   ending     the lock is lost, or about to be, or the command's time is over: TERM, KILL, until nothing of the family is
 *              left (ending.h) */
#include "cli/lock/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"
#include "cli/lock/command.h"
#include "cli/lock/ending.h"
#include "cli/lock/guard.h"

#define LOOK_AROUND AL_SECOND /* the longest wait */
#define WAITS_EACH_BEAT 8     /* at least so many waits in a heartbeat */
#define FRESH_BEATS 1.9       /* a lock is certain for 1.95 heartbeats after an answer of the broker */

typedef struct run {
  al_session *session;
  const cli_held *held;
  const cli_options *options;
  const cli_signals *signals;
  cli_news *news;
  cli_command command;
  cli_family family;
  cli_guard guard;
  cli_ending ending;
  int64_t certain_until; /* as it was last known, also when the lock is lost */
  bool has_ended;        /* the command; `status` is that of waitid() */
  int status;
  bool is_ending, was_lost, has_expired, is_over, was_revoked, gave_up;
  bool wants_terminal; /* the command is stopped, because it was in the background */
} run;

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- the loss of the lock, the end of its time ----------------------------------------------------------------- */

/* With a guard the command must have ended before the certainty ends, so the broker's silence counts as a loss a grace
 * earlier; also when somebody has killed the guard. */
static int64_t doubt_at(const run *self) {
  return self->certain_until - self->options->lost_grace - CLI_GUARD_SPARE;
}

/* Returns AL_OK, or what has become of a lock, of which one, and why. */
static al_code look_at_locks(const run *self, int64_t now, const al_lock **which, const char **why) {
  al_code code;
  *which = cli_held_trouble(self->held, now, &code);
  if (!*which) *which = cli_held_first(self->held);
  *why = al_lock_reason(*which);
  if (code == AL_OK || code == AL_SUSPECT) {
    *why = "the broker has been silent for too long";
    if (cli_guard_has_acted(&self->guard) && !self->has_expired) {
      *why = "this process did not run for too long, and its guard ends the command";
      return AL_SUSPECT;
    }
  }
  if (code != AL_OK) return code;
  if (!self->options->has_guard || now < doubt_at(self)) return AL_OK;
  *why = "the broker has been silent for so long that the lock may be lost before the command has ended";
  return AL_SUSPECT;
}

static const char *consequence(const run *self, int64_t now) {
  if (!self->is_ending) return "the command goes on";
  return self->ending.kill_at <= now ? "the command is killed" : "the command is asked to end";
}

static void tell_loss(run *self, int64_t now, const al_lock *which, al_code code, const char *why) {
  char text[AL_MESSAGE_SIZE + 64];
  bool is_told = cli_guard_has_acted(&self->guard);
  snprintf(text, sizeof text, "%s%s%s", *why ? why : "the lock is gone", is_told ? "" : "; ",
           is_told ? "" : consequence(self, now));
  self->was_lost = true;
  cli_news_lost(self->news, which, code, text);
}

/* A loss may shorten an ending that has begun. The command must have ended when the next holder is in, unless it is to
 * outlive the lock. */
static void begin_ending(run *self, int64_t now, int64_t grace) {
  int64_t latest = self->certain_until + (self->options->has_guard ? -CLI_GUARD_SPARE : grace);
  if (self->options->on_lost == CLI_LOST_IGNORE) latest = AL_NEVER;
  int64_t kill_at = cli_ending_kill_at(now, grace, latest);
  bool has_begun = self->is_ending || cli_guard_has_acted(&self->guard);
  if (self->is_ending) kill_at = earlier(kill_at, self->ending.kill_at);
  cli_guard_tell_ending(&self->guard, kill_at);
  self->is_ending = true;
  if (has_begun)
    cli_ending_take_over(&self->ending, now, kill_at);
  else
    cli_ending_begin(&self->ending, &self->family, now, kill_at);
}

static void note_certainty(run *self) {
  int64_t certain_until = cli_held_certain_until(self->held);
  if (certain_until == 0) return;
  self->certain_until = certain_until;
  cli_guard_renew(&self->guard, certain_until);
}

static void mind_locks(run *self, int64_t now) {
  const al_lock *which;
  const char *why;
  al_session_alerts(self->session); /* makes the descriptor silent */
  note_certainty(self);
  if (self->was_lost) return;
  al_code code = look_at_locks(self, now, &which, &why);
  if (code == AL_OK) return;
  bool goes_on = self->options->on_lost == CLI_LOST_IGNORE;
  if (!goes_on) begin_ending(self, now, self->options->lost_grace);
  tell_loss(self, now, which, code, why);
}

static void mind_time(run *self, int64_t now) {
  if (self->is_ending || self->has_ended || now < self->held->expires_at) return;
  self->has_expired = true;
  begin_ending(self, now, self->options->grace);
  cli_news_expired(self->news, self->held, consequence(self, now));
}

/* One that ends goes to the whole family. Others are messages to the command, and end processes that do not expect
 * them. */
static void pass_on(const run *self, int signal) {
  if (cli_signals_gives_up(signal))
    cli_family_signal(&self->family, signal);
  else
    cli_family_pass_on(&self->family, signal);
}

static void mind_revocation(run *self) {
  const al_lock *which = self->was_revoked ? NULL : cli_held_revoked(self->held);
  if (!which) return;
  self->was_revoked = true;
  cli_news_revoked(self->news, which);
  if (self->options->revoke_signal) pass_on(self, self->options->revoke_signal);
}

/* ---- signals ---------------------------------------------------------------------------------------------------- */

/* As wait(2) gives it. */
static void take_status(run *self, const siginfo_t *info) {
  self->has_ended = true;
  self->status = info->si_code == CLD_EXITED ? info->si_status << 8 : info->si_status;
}

static void lose_guard(run *self) {
  cli_guard_gone(&self->guard);
  self->family.guard = 0;
  if (!cli_guard_has_acted(&self->guard))
    cli_warn("the guard was killed: nothing ends the command if this process is killed, too");
}

/* The terminal has stopped its process group, except this program, which ignores that. So the shell takes the job for a
 * running one, and continues nothing when it brings the job to the foreground. */
static void notice_stop(run *self) {
  siginfo_t info = {.si_pid = 0};
  if (waitid(P_PID, (id_t)self->command.pid, &info, WSTOPPED | WNOHANG) < 0 || info.si_pid == 0) return;
  self->wants_terminal =
      self->command.shares_group && (info.si_status == SIGTTIN || info.si_status == SIGTTOU);
}

static void mind_terminal(run *self) {
  if (!self->wants_terminal || !cli_command_in_foreground()) return;
  self->wants_terminal = false;
  kill(0, SIGCONT);
}

/* Waits for children that have ended, which may be orphans of the command. The command itself is only looked at if
 * possible, so that its number stays its own while its family is signalled. */
static void reap(run *self) {
  for (siginfo_t info;;) {
    info.si_pid = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
    if (info.si_pid == self->command.pid) {
      take_status(self, &info);
      if (!cli_family_lives_by_group(&self->family)) return;
    }
    if (info.si_pid == self->guard.pid) lose_guard(self);
    waitpid(info.si_pid, NULL, 0);
  }
}

/* A signal of the terminal has reached the command as well, if that shares this process's group. */
static bool reached_command(const run *self, const struct signalfd_siginfo *info) {
  return self->command.shares_group && info->ssi_code > 0;
}

static void take_signals(run *self) {
  struct signalfd_siginfo info;
  while (cli_signals_next(self->signals, &info)) {
    self->gave_up |= cli_signals_gives_up((int)info.ssi_signo);
    if (info.ssi_signo == SIGCHLD) {
      notice_stop(self);
      reap(self);
    } else if (!self->has_ended && !reached_command(self, &info)) {
      pass_on(self, (int)info.ssi_signo);
    }
  }
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

/* The guard must hear of the certainty long before it ends. */
static int64_t wake_at(const run *self, int64_t now) {
  int64_t wake = now + earlier(LOOK_AROUND, self->options->heartbeat / WAITS_EACH_BEAT);
  int64_t timeout = al_native_timeout(self->session);
  if (self->options->has_guard && !self->was_lost) wake = earlier(wake, doubt_at(self));
  wake = earlier(wake, self->is_ending ? self->ending.look_at : self->held->expires_at);
  if (timeout != AL_NEVER) wake = earlier(wake, now + timeout);
  return wake;
}

static void wait_a_while(run *self) {
  struct pollfd all[] = {{.fd = self->signals->fd, .events = POLLIN},
                         {.fd = al_native_pollfd(self->session), .events = POLLIN}};
  int64_t now = al_system_now(), left = wake_at(self, now) - now;
  if (left < 0) left = 0;
  struct timespec timeout = {.tv_sec = left / AL_SECOND, .tv_nsec = left % AL_SECOND};
  ppoll(all, 2, &timeout, NULL);
  if (al_native_timeout(self->session) != AL_NEVER) al_native_touch(self->session);
}

static void step(run *self) {
  wait_a_while(self);
  take_signals(self);
  mind_terminal(self);
  mind_locks(self, al_system_now());
  mind_time(self, al_system_now());
  mind_revocation(self);
  cli_news_connections(self->news, self->session);
  cli_report_notes(self->session);
  if (self->is_ending)
    self->is_over = cli_ending_step(&self->ending, &self->family, al_system_now()) && self->has_ended;
  else
    self->is_over = self->has_ended;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static cli_outcome cannot(int status, const char *what, int reason) {
  cli_error("%s: %s", what, strerror(reason));
  return (cli_outcome){.status = status};
}

static cli_outcome outcome(const run *self) {
  cli_outcome how = {.was_lost = self->was_lost, .gave_up = self->gave_up, .has_run = true};
  if (self->was_lost && self->options->on_lost != CLI_LOST_IGNORE) {
    how.status = self->options->lost_status;
    return how;
  }
  if (self->has_expired) {
    how.status = CLI_EXIT_EXPIRED;
    return how;
  }
  if (WIFEXITED(self->status)) {
    how.status = WEXITSTATUS(self->status);
    return how;
  }
  int signal = WTERMSIG(self->status);
  how.status = CLI_EXIT_SIGNAL + signal;
  if (signal == SIGINT || signal == SIGQUIT) how.signal = signal;
  return how;
}

/* A permit is granted at any time of the certainty, also near its end, and a guard would end the command at once: so the
 * broker is asked. Returns false if the lock is lost. */
static bool ascertain(run *self) {
  char why[AL_MESSAGE_SIZE];
  int64_t least = al_system_now() + (int64_t)(FRESH_BEATS * (double)self->options->heartbeat);
  note_certainty(self);
  if (!self->options->has_guard || self->certain_until >= least) return true;
  al_code code;
  const al_lock *which = cli_held_verify(self->session, self->held, &code, why);
  if (which) cli_news_lost(self->news, which, code, why);
  note_certainty(self);
  return !which;
}

/* The command waits behind its gate. A command that was not let through ends when this process does. */
static bool begin_guard(run *self) {
  if (!self->options->has_guard) return true;
  return cli_guard_begin(&self->guard, self->session, self->certain_until, &self->command, &self->family,
                         self->options->lost_grace, self->options->held_file);
}

static bool is_shell_line(char **command) {
  return !command[1] && command[0][strcspn(command[0], " ;|&<>$")];
}

static bool execute(run *self, cli_outcome *how) {
  int reason = cli_command_execute(&self->command);
  if (reason == 0) return true;
  cli_guard_end(&self->guard);
  if (is_shell_line(self->options->command))
    cli_error("a line for the shell stands behind -c: NAME -c 'LINE'");
  *how =
      cannot(reason == ENOENT ? CLI_EXIT_NO_COMMAND : CLI_EXIT_CANNOT_RUN, self->options->command[0], reason);
  return false;
}

/* The profile of a container may deny it. */
static bool can_wait_for_children(void) {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno == ECHILD;
}

/* The command is forked, then guarded, then executed. Returns false if it does not run; `how` says why. */
static bool begin(run *self, cli_outcome *how) {
  *how = (cli_outcome){.status = self->options->lost_status, .was_lost = true};
  if (!ascertain(self)) return false;
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of the command become children of this process */
  if (!can_wait_for_children() ||
      !cli_command_fork(&self->command, self->options, self->held, self->signals)) {
    *how = cannot(CLI_EXIT_SOFTWARE, "cannot start a process and wait for it", errno);
    return false;
  }
  cli_family_begin(&self->family, self->command.pid, !self->command.shares_group,
                   al_lock_ticket(cli_held_first(self->held)));
  if (!begin_guard(self)) {
    *how = cannot(CLI_EXIT_SOFTWARE, "cannot start the guard", errno);
    return false;
  }
  if (!execute(self, how)) return false;
  cli_news_started(self->news, self->command.pid);
  return true;
}

cli_outcome cli_run(al_session *session, const cli_held *held, const cli_options *options,
                    const cli_signals *signals, cli_news *news) {
  run self = {.session = session,
              .held = held,
              .options = options,
              .signals = signals,
              .news = news,
              .certain_until = al_system_now()};
  cli_outcome how;
  if (!begin(&self, &how)) return how;
  while (!self.is_over) step(&self);
  cli_guard_end(&self.guard);
  waitpid(self.command.pid, NULL, 0);
  cli_news_ended(news, self.status);
  return outcome(&self);
}
