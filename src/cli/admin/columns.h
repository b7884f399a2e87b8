/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Prints a listing: as a table, as lines of JSON, or as the commands that close the connections of the holders. */
#ifndef CLI_ADMIN_COLUMNS_H
#define CLI_ADMIN_COLUMNS_H

#include <stdio.h>

#include "cli/admin/listing.h"

#define ADMIN_TIME_SIZE 32

#define ADMIN_UNREAD "%zu of the queues, consumers and channels could not be read"

/* Writes a time in UTC, of seconds since the epoch; "-" for one that is not known. Returns `out`. */
const char *admin_print_time(int64_t since, char out[ADMIN_TIME_SIZE]);

/* NAME WHAT HOLDER SINCE TICKET USER CONNECTION, and VHOST before them if there are several. "-": not known. A line for
 * each deadlock stands above. */
void admin_print_table(FILE *out, const admin_listing *listing);

/* An object a line. */
void admin_print_json(const admin_listing *listing);

/* In one line: how many hold, and how many wait for, a lock of this kind (listing.h). */
void admin_print_counts(const admin_listing *listing, const char *name, const char *kind, bool is_json);

/* For each holder comments, and a command for a shell that closes its connection: by the management API at the address
 * `api`, or, if that is NULL, by rabbitmqctl. `user`: curl(1) asks for the password of this user; NULL: it does not ask. */
void admin_print_holders(const admin_listing *listing, const char *api, const char *user);

/* As a part of a URL; the caller frees it. */
char *admin_url_escape(const char *text);

#endif
