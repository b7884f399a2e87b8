/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * amqp-lock: runs a command while it holds a lock. docs/man/amqp-lock.1 says all of what it does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "amqplocks.h"
#include "cli/common/descriptors.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"
#include "cli/lock/command.h"
#include "cli/lock/hold.h"
#include "cli/lock/lock.h"
#include "cli/lock/nested.h"
#include "cli/lock/news.h"
#include "cli/lock/notify.h"
#include "cli/lock/options.h"
#include "cli/lock/run.h"
#include "cli/lock/signals.h"
#include "cli/lock/status.h"

/* A connection that ends without a close is a warning in the broker's log. */
static cli_outcome failure(al_session *session, const cli_options *options, cli_news *news,
                           const cli_result *result) {
  bool was_lost = result->code == AL_LOST || result->code == AL_SUSPECT ||
                  (options->restarts && result->code == AL_CONTENDED);
  cli_news_failed(news, result->code, result->message);
  if (result->code == AL_NOT_FOUND && options->wishes_count == 1)
    cli_error("--slots N, or --permits N, creates it");
  cli_broker_hint(&options->broker, result->code);
  if (result->code != AL_UNREACHABLE) cli_lock_close(session);
  int status = cli_exit_of(result->code);
  return (cli_outcome){.status = status == CLI_EXIT_CONFLICT ? options->conflict_status : status,
                       .was_lost = was_lost};
}

/* A signal that gave up just before it was blocked counts: no command has begun. */
static int pending_signal(const cli_signals *signals) {
  struct signalfd_siginfo info;
  while (cli_signals_next(signals, &info))
    if (cli_signals_gives_up((int)info.ssi_signo)) return (int)info.ssi_signo;
  return 0;
}

static cli_outcome hold_or_run(al_session *session, const cli_held *held, const cli_options *options,
                               const cli_signals *signals, cli_news *news) {
  int signal = pending_signal(signals);
  if (signal) return (cli_outcome){.signal = signal};
  if (options->hold) return cli_hold(session, held, options, signals, news);
  cli_outcome outcome = cli_run(session, held, options, signals, news);
  if (options->at_least > 0 && outcome.has_run && !outcome.was_lost && !outcome.gave_up)
    cli_hold_longer(session, held, options, signals, news, &outcome);
  return outcome;
}

/* As in an election: the lock is acquired again when it was lost, unless somebody has asked the program to end. */
static bool begins_again(const cli_options *options, const cli_outcome *outcome) {
  return options->restarts && outcome->was_lost && !outcome->gave_up && !outcome->signal;
}

/* The lock may have been lost without anybody having noticed. If only the answer to the release is missing, the command
 * has ended while the lock was held. */
static void release(al_session *session, cli_held *held, const cli_options *options, cli_news *news,
                    cli_outcome *outcome) {
  if (!begins_again(options, outcome)) cli_notify_send(news->notify_fd, "STOPPING=1");
  cli_news_releasing(news);
  if (outcome->was_lost) {
    al_session_abort(session);
    cli_held_drop(held);
    return;
  }
  cli_result result = cli_lock_release(session, held);
  if (result.code == AL_OK)
    cli_news_released(news);
  else if (result.code == AL_UNREACHABLE)
    cli_warn("%s", result.message);
  else
    cli_news_failed(news, result.code, result.message);
  if (result.code != AL_LOST || options->on_lost == CLI_LOST_IGNORE) return;
  *outcome = (cli_outcome){.status = options->lost_status, .was_lost = true, .gave_up = outcome->gave_up};
}

static cli_outcome hold_once(al_session *session, const cli_options *options, cli_signals *signals,
                             cli_news *news) {
  cli_result result;
  cli_held held;
  if (!cli_lock_acquire(session, options, news, &held, &result))
    return failure(session, options, news, &result);
  if (!cli_signals_hold(signals)) {
    cli_error("cannot wait for signals: %s", strerror(errno));
    cli_held_drop(&held);
    return (cli_outcome){.status = CLI_EXIT_SOFTWARE};
  }
  for (int i = 0; i < held.count; i++) cli_news_acquired(news, held.locks[i]);
  cli_outcome outcome = hold_or_run(session, &held, options, signals, news);
  release(session, &held, options, news, &outcome);
  return outcome;
}

int main(int argc, char **argv) {
  cli_options options;
  cli_signals signals;
  cli_outcome outcome;
  cli_descriptors_begin();
  cli_report_begin("amqp-lock");
  cli_signals_begin(&signals);
  cli_options_read(&options, argc, argv);
  cli_nested_check(&options);
  cli_hold_check_input(&options);
  cli_descriptors_keep_back(options.status_fd);
  cli_signals_tell(options.status_fd);
  cli_command_keep_outer_tickets();

  cli_news news = cli_news_begin(&options);
  for (;;) {
    al_session *session = cli_broker_session(&options.broker);
    if (!options.restarts) cli_broker_forget(&options.broker);
    outcome = hold_once(session, &options, &signals, &news);
    al_session_drop(session);
    if (!begins_again(&options, &outcome)) break;
    cli_signals_wait(&signals);
  }
  if (options.restarts) cli_broker_forget(&options.broker);
  if (cli_status_dropped())
    cli_warn("--status-fd: %d lines were dropped, which the descriptor did not take", cli_status_dropped());
  if (outcome.signal) cli_exit_by_signal(outcome.signal);
  return outcome.status;
}
