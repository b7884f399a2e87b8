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

/* NAME WHAT HOLDER SINCE TICKET CONNECTION, and VHOST before them if there are several. "-": not known. */
void admin_print_table(FILE *out, const admin_listing *listing);

/* An object a line. */
void admin_print_json(const admin_listing *listing);

/* For each holder a comment, and a command for a shell. `api`: the address of the management API, for holders whose
 * connection has a name and no pid. */
void admin_print_holders(const admin_listing *listing, const char *api);

/* The command lines that list what the filters read. */
void admin_print_sources(const char *verb);

#endif
