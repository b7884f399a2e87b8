/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/hold.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"

#define ENDED                                                                                                \
  "its input has ended, which would release the lock at once: leave a pipe open, or use </dev/null, which "  \
  "holds it until a signal"

typedef struct hold {
  al_session *session;
  const cli_held *held;
  const cli_options *options;
  const cli_signals *signals;
  cli_news *news;
  int64_t until;
  bool reads_input, is_over, was_revoked;
  cli_outcome outcome;
} hold;

static bool print(const hold *self, const char *what, const char *text) {
  char line[AL_MESSAGE_SIZE + 128];
  if (!self->options->hold) return true; /* a command's output is not ours */
  snprintf(line, sizeof line, "%s%s%s", what, *text ? " " : "", text);
  cli_text_clean(line);
  return dprintf(STDOUT_FILENO, "%s\n", line) > 0;
}

/* A background process may not read its terminal; the input then does not matter. */
static void read_input(hold *self) {
  char bytes[4096];
  ssize_t length = read(STDIN_FILENO, bytes, sizeof bytes);
  if (length > 0 || (length < 0 && (errno == EINTR || errno == EAGAIN))) return;
  if (length < 0 && errno == EIO)
    self->reads_input = false;
  else
    self->is_over = true;
}

/* Somebody writes at the other side of a pipe, a socket or a terminal. */
static bool has_input(const cli_options *options) {
  struct stat what;
  if (options->notify || fstat(STDIN_FILENO, &what) < 0) return false;
  return S_ISFIFO(what.st_mode) || S_ISSOCK(what.st_mode) || isatty(STDIN_FILENO);
}

static bool input_has_ended(const cli_options *options) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLRDHUP};
  return has_input(options) && poll(&input, 1, 0) == 1;
}

void cli_hold_check_input(const cli_options *options) {
  if (options->hold && input_has_ended(options)) cli_usage_error("option --hold: %s", ENDED);
}

/* Orphans of a command that has ended. */
static void reap(void) {
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

static void take_signals(hold *self) {
  struct signalfd_siginfo info;
  while (cli_signals_next(self->signals, &info)) {
    if (info.ssi_signo == SIGCHLD) reap();
    if (!cli_signals_gives_up((int)info.ssi_signo)) continue;
    self->outcome.signal = (int)info.ssi_signo;
    self->is_over = true;
  }
}

static void mind_loss(hold *self) {
  char text[AL_MESSAGE_SIZE + 64];
  al_code code;
  const al_lock *which = cli_held_trouble(self->held, al_system_now(), &code);
  if (!which || self->outcome.was_lost) return;
  const char *why = code == AL_SUSPECT ? "the broker has been silent for too long" : al_lock_reason(which);
  snprintf(text, sizeof text, "%s: %s", al_code_name(code), why);
  print(self, "lost",
        text); /* its reader may be gone by now, as in "revoked": the exit status tells it, too */
  cli_news_lost(self->news, which, code, why);
  self->outcome.was_lost = true;
  if (self->options->on_lost == CLI_LOST_IGNORE && self->options->hold) return;
  self->outcome.status = self->options->lost_status;
  self->is_over = true;
}

static void mind_revocation(hold *self) {
  const al_lock *which = self->was_revoked ? NULL : cli_held_revoked(self->held);
  if (!which) return;
  self->was_revoked = true;
  print(self, "revoked", "");
  cli_news_revoked(self->news, which);
  if (self->options->revoke_signal) self->is_over = true;
}

static void mind_time(hold *self) {
  if (self->is_over || al_system_now() < self->until) return;
  self->is_over = true;
  if (!self->options->hold) return;
  print(self, "expired", "");
  cli_news_expired(self->news, self->held, "it is released");
  self->outcome.status = CLI_EXIT_EXPIRED;
}

static void wait_a_while(hold *self) {
  struct pollfd all[] = {{.fd = self->signals->fd, .events = POLLIN},
                         {.fd = al_native_pollfd(self->session), .events = POLLIN},
                         {.fd = self->reads_input ? STDIN_FILENO : -1, .events = POLLIN}};
  int64_t timeout = al_native_timeout(self->session), left = self->until - al_system_now();
  if (timeout > AL_SECOND) timeout = AL_SECOND;
  if (timeout > left) timeout = left > 0 ? left : 0;
  poll(all, 3, (int)((timeout + AL_MILLISECOND - 1) / AL_MILLISECOND));
  al_native_touch(self->session);
  if (all[2].revents) read_input(self);
}

static void hold_on(hold *self) {
  while (!self->is_over) {
    wait_a_while(self);
    take_signals(self);
    al_session_alerts(self->session);
    mind_loss(self);
    mind_revocation(self);
    mind_time(self);
    cli_news_connections(self->news, self->session);
    cli_report_notes(self->session);
  }
}

cli_outcome cli_hold(al_session *session, const cli_held *held, const cli_options *options,
                     const cli_signals *signals, cli_news *news) {
  hold self = {session, held, options, signals, news, held->expires_at, .reads_input = has_input(options)};
  if (input_has_ended(options)) { /* while it waited */
    cli_error("option --hold: %s", ENDED);
    return (cli_outcome){.status = CLI_EXIT_USAGE};
  }
  if (!print(&self, "held", al_lock_ticket(cli_held_first(held)))) {
    cli_error("cannot write the output: %s", strerror(errno));
    return (cli_outcome){.status = CLI_EXIT_SOFTWARE};
  }
  cli_news_started(news, 0);
  hold_on(&self);
  return self.outcome;
}

/* An administrator who has asked for the lock, and been heard, gets it at once. */
void cli_hold_longer(al_session *session, const cli_held *held, const cli_options *options,
                     const cli_signals *signals, cli_news *news, cli_outcome *outcome) {
  hold self = {
      session, held, options, signals, news, held->keep_until, .was_revoked = cli_held_revoked(held) != NULL};
  self.is_over = self.was_revoked && options->revoke_signal;
  if (al_system_now() < self.until && !self.is_over) cli_news_keeping(news, self.until);
  hold_on(&self);
  if (!self.outcome.was_lost) return;
  outcome->was_lost = true;
  if (options->on_lost != CLI_LOST_IGNORE) outcome->status = options->lost_status;
}
