/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * An amqp-lock in the command of another one that holds the same lock would wait for itself. */
#ifndef CLI_LOCK_NESTED_H
#define CLI_LOCK_NESTED_H

#include "cli/lock/options.h"

/* Ends the program with status 64 if it was started by the command of an amqp-lock that excludes one of its wishes, as
 * AMQP_LOCK_NAME and AMQP_LOCK_KIND tell. A process that such a command has left behind, and whose amqp-lock has ended,
 * goes on. Where /proc is missing, every process does. */
void cli_nested_check(const cli_options *options);

#endif
