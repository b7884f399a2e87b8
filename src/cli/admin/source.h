/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Where the lists of queues, consumers and channels come from: the files that are given; otherwise the management API of
 * --api; otherwise that of the broker of AMQP_URL, with its user, or rabbitmqctl, if that broker is on this machine and
 * listens on the URL's port. */
#ifndef CLI_ADMIN_SOURCE_H
#define CLI_ADMIN_SOURCE_H

#include "cli/admin/options.h"
#include "cli/admin/rows.h"

/* Adds the rows of the first source that answers to `rows`, and sets `api` to its address if that is an API. Ends the
 * program if there is none, with a message that says why, and its status. */
void admin_source_read(admin_options *options, admin_rows *rows);

/* The address of the API of a node of the broker, with user and password; the caller frees it. */
char *admin_source_address(const admin_options *options, size_t node);

/* Moves the user of --api to `api_user`, and drops the password. */
void admin_source_hide_password(admin_options *options);

/* How long one source may take to answer, in nanoseconds. */
int64_t admin_source_timeout(const admin_options *options);

#endif
