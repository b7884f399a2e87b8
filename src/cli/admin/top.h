/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The verb "top": who holds and who waits, from the management API, again and again. A terminal shows the last table,
 * in place; elsewhere each table stands below the former. A failure that may pass is told, and the API is asked again. */
#ifndef CLI_ADMIN_TOP_H
#define CLI_ADMIN_TOP_H

#include "cli/admin/options.h"

/* Returns the exit status, after a failure that stays. */
int admin_top_run(admin_options *options);

#endif
