/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * --hold: no command. Holds the lock until the input ends, or a signal comes, or the lock is lost. */
#ifndef CLI_HOLD_H
#define CLI_HOLD_H

#include "cli/held.h"
#include "cli/news.h"
#include "cli/run.h"
#include "cli/signals.h"

/* Prints "held TICKET", and "revoked" and "lost CODE: REASON" when that happens, each as one line on standard output. With
 * --notify the input is not looked at, since a service has none. A signal that ends it is the outcome's. */
cli_outcome cli_hold(al_session *session, const cli_held *held, const cli_options *options,
                     const cli_signals *signals, cli_news *news);

#endif
