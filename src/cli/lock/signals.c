/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/signals.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/lock/status.h"

static const int giving_up[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The program waits for children, and no write ends it: to a pipe without a reader, to a terminal from its background,
 * to a file that may not grow. */
static const struct {
  int signal;
  void (*handler)(int);
} dispositions[CLI_SIGNALS_SET] = {
    {SIGCHLD, SIG_DFL}, {SIGPIPE, SIG_IGN}, {SIGTTIN, SIG_IGN}, {SIGTTOU, SIG_IGN}, {SIGXFSZ, SIG_IGN}};

static int told_fd = -1;

static const char *gave_up_line(int signal) {
  return signal == SIGTERM  ? "{\"event\":\"gave_up\",\"signal\":15}\n"
         : signal == SIGINT ? "{\"event\":\"gave_up\",\"signal\":2}\n"
         : signal == SIGHUP ? "{\"event\":\"gave_up\",\"signal\":1}\n"
                            : "{\"event\":\"gave_up\",\"signal\":3}\n";
}

static void give_up(int signal) {
  const char *line = gave_up_line(signal);
  if (told_fd >= 0) cli_status_write(told_fd, line, strlen(line));
  cli_exit_by_signal(signal);
}

bool cli_signals_gives_up(int signal) {
  for (size_t i = 0; i < COUNT(giving_up); i++)
    if (signal == giving_up[i]) return true;
  return false;
}

static bool is_ignored(int signal) {
  struct sigaction now;
  return sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void drop(int signal) { (void)signal; }

void cli_signals_tell(int status_fd) { told_fd = status_fd; }

void cli_signals_begin(cli_signals *signals) {
  signals->fd = -1;
  sigprocmask(SIG_SETMASK, NULL, &signals->mask);
  for (int i = 0; i < CLI_SIGNALS_SET; i++)
    sigaction(dispositions[i].signal, &(struct sigaction){.sa_handler = dispositions[i].handler},
              &signals->found[i]);
  cli_signals_wait(signals);
}

/* What was meant for the command, which has ended, is dropped. */
static void leave_descriptor(cli_signals *signals) {
  struct signalfd_siginfo info;
  while (cli_signals_next(signals, &info))
    if (cli_signals_gives_up((int)info.ssi_signo)) give_up((int)info.ssi_signo);
  close(signals->fd);
  signals->fd = -1;
}

void cli_signals_wait(cli_signals *signals) {
  if (signals->fd >= 0) leave_descriptor(signals);
  sigset_t wanted;
  sigemptyset(&wanted);
  for (size_t i = 0; i < COUNT(passed_on); i++) {
    bool gives_up = cli_signals_gives_up(passed_on[i]);
    if (is_ignored(passed_on[i])) continue;
    struct sigaction action = {.sa_handler = gives_up ? give_up : drop, .sa_flags = SA_RESTART};
    sigaction(passed_on[i], &action, NULL);
    if (gives_up) sigaddset(&wanted, passed_on[i]);
  }
  sigprocmask(SIG_SETMASK, &signals->mask, NULL);
  sigprocmask(SIG_UNBLOCK, &wanted, NULL);
}

sigset_t cli_signals_defer(void) {
  sigset_t set, before;
  sigemptyset(&set);
  for (size_t i = 0; i < COUNT(giving_up); i++) sigaddset(&set, giving_up[i]);
  sigprocmask(SIG_BLOCK, &set, &before);
  return before;
}

void cli_signals_restore(const sigset_t *mask) { sigprocmask(SIG_SETMASK, mask, NULL); }

/* An ignored signal is not blocked: a descriptor would be told of it. */
bool cli_signals_hold(cli_signals *signals) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (size_t i = 0; i < COUNT(passed_on); i++)
    if (!is_ignored(passed_on[i])) sigaddset(&set, passed_on[i]);
  sigprocmask(SIG_BLOCK, &set, NULL);
  for (size_t i = 0; i < COUNT(giving_up); i++)
    if (!is_ignored(giving_up[i])) sigaction(giving_up[i], &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
  signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return signals->fd >= 0;
}

bool cli_signals_next(const cli_signals *signals, struct signalfd_siginfo *info) {
  return read(signals->fd, info, sizeof *info) == (ssize_t)sizeof *info;
}

void cli_signals_leave(const cli_signals *signals) {
  for (int i = 0; i < CLI_SIGNALS_SET; i++) sigaction(dispositions[i].signal, &signals->found[i], NULL);
  sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}
