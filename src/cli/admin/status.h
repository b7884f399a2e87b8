/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What an operation of administration found, in one line: for people, or as a JSON object. */
#ifndef CLI_ADMIN_STATUS_H
#define CLI_ADMIN_STATUS_H

#include "cli/admin/options.h"

typedef struct admin_status {
  size_t count, seen; /* slots or permits; the slots that were looked at */
  al_permits permits;
} admin_status;

admin_status admin_status_of(const admin_options *options, const al_op *op);

/* The line, without its end; the caller frees it. */
char *admin_status_text(const admin_options *options, const admin_status *status, const al_op *op);

/* Prints what the verb is to print, if anything. */
void admin_status_print(const admin_options *options, const admin_status *status, const al_op *op);

#endif
