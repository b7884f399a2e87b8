/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The verbs that ask the broker. */
#ifndef CLI_ADMIN_VERBS_H
#define CLI_ADMIN_VERBS_H

#include "cli/admin/options.h"

/* Does what the verb says, and prints the outcome. Returns the exit status. */
int admin_verb_run(admin_options *options);

#endif
