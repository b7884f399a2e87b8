/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Prints a listing: as a table, as lines of JSON, or as the commands that close the connections of the holders. */
#ifndef CLI_ADMIN_PRINT_H
#define CLI_ADMIN_PRINT_H

#include "cli/admin_listing.h"

/* NAME WHAT HOLDER SINCE TICKET CONNECTION, and VHOST before them if there are several. "-": not known. */
void admin_print_table(const admin_listing *listing);

/* An object a line. */
void admin_print_json(const admin_listing *listing);

/* For each holder a comment, and a command for a shell. `api`: the address of the management API, for holders whose
 * connection has a name and no pid. */
void admin_print_holders(const admin_listing *listing, const char *api);

/* The command lines that list what the filters read. */
void admin_print_sources(const char *verb);

#endif
