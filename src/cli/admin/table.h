/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reads what rabbitmqctl list_queues, list_consumers and list_channels print: a line with the names of the columns, then a
 * line for each row, with tabs between the columns. Several such tables may follow one another. Lines before the first one
 * are for people ("Listing queues …"). */
#ifndef CLI_ADMIN_TABLE_H
#define CLI_ADMIN_TABLE_H

#include "cli/admin/rows.h"

typedef struct admin_unread {
  size_t lines, first; /* how many lines were not understood, and the number of the first one */
} admin_unread;

/* Adds the rows to `rows`. Returns false if there is no line with names of columns. */
bool admin_table_read(admin_rows *rows, const char *input, size_t length, admin_unread *unread);

#endif
