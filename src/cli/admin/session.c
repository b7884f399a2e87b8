/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"

static const int giving_up[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

static volatile sig_atomic_t got;     /* the signal that came first; 0: none */
static volatile sig_atomic_t orderly; /* the first signal does not end the program at once */
static const cli_broker *broker;
static int told[2] = {-1, -1}; /* a pipe: readable once a signal came */

static void give_up(int signal) {
  int before = errno;
  if (!orderly || got) cli_exit_by_signal(signal);
  got = signal;
  if (write(told[1], "", 1) < 0) cli_exit_by_signal(signal);
  errno = before;
}

/* What was ignored stays ignored, as by nohup(1). */
static void mind_signals(void) {
  struct sigaction now, mine = {.sa_handler = give_up};
  if (pipe2(told, O_CLOEXEC | O_NONBLOCK) != 0) {
    cli_error("limit: %s", strerror(errno));
    exit(cli_exit_of(AL_LIMIT));
  }
  for (size_t i = 0; i < sizeof giving_up / sizeof *giving_up; i++)
    if (sigaction(giving_up[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaction(giving_up[i], &mine, NULL);
}

void admin_session_close(al_session *session) {
  al_op_wait(session, al_session_close(session), NULL);
  cli_report_notes(session);
  al_session_drop(session);
}

static void end_by_signal(al_session *session, al_op *op) {
  if (!got) return;
  al_op_drop(op);
  admin_session_close(session);
  cli_exit_by_signal(got);
}

al_code admin_session_await(al_session *session, al_op *op, char message[AL_MESSAGE_SIZE]) {
  if (!op) cli_fail_no_memory();
  while (!al_op_done(op)) {
    cli_broker_renew(broker, session);
    al_native_wait_fd(session, op, told[0], AL_NEVER);
    cli_report_notes(session);
    if (!al_op_done(op)) end_by_signal(session, op);
  }
  snprintf(message, AL_MESSAGE_SIZE, "%s", al_op_message(op));
  return al_op_code(op);
}

void admin_session_pause(al_session *session) {
  int64_t until = al_system_now() + AL_SECOND;
  while (!got && al_system_now() < until) {
    cli_broker_renew(broker, session);
    al_native_wait_fd(session, NULL, told[0], until);
  }
  cli_report_notes(session);
  end_by_signal(session, NULL);
}

al_session *admin_session_open(admin_options *options) {
  char message[AL_MESSAGE_SIZE];
  mind_signals();
  cli_broker_settle(&options->broker, "amqp-lock-admin");
  broker = &options->broker;
  al_session *session = cli_broker_session(&options->broker);
  al_op *op = al_session_open(session);
  al_code code = admin_session_await(session, op, message);
  orderly = 1;
  al_op_drop(op);
  if (code == AL_OK || options->verb->id == ADMIN_WATCH) return session;
  cli_error("%s", message);
  cli_broker_hint(broker, code);
  al_session_drop(session);
  exit(cli_exit_of(code));
}
