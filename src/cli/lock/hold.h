/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Holding the lock without a command: with --hold, until a signal comes, or the lock is lost, or the input ends; with
 * --at-least, after the command. An input that cannot tell when it ends, such as the /dev/null of a background job, is
 * not looked at. */
#ifndef CLI_LOCK_HOLD_H
#define CLI_LOCK_HOLD_H

#include "cli/lock/held.h"
#include "cli/lock/news.h"
#include "cli/lock/run.h"
#include "cli/lock/signals.h"

/* Ends the program with status 64 if its input has ended already: the lock would be released as soon as it is held. */
void cli_hold_check_input(const cli_options *options);

/* Prints "held TICKET", and "revoked" and "lost CODE: REASON" when that happens, each as one line on standard output. With
 * --notify the input is not looked at. A signal that ends it is the outcome's. */
cli_outcome cli_hold(al_session *session, const cli_held *held, const cli_options *options,
                     const cli_signals *signals, cli_news *news);

/* --at-least: holds the lock until its time is over, or a signal comes. Changes the outcome of the command if the lock is
 * lost meanwhile. */
void cli_hold_longer(al_session *session, const cli_held *held, const cli_options *options,
                     const cli_signals *signals, cli_news *news, cli_outcome *outcome);

#endif
