/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reads the files of the filters: tables of rabbitmqctl, or JSON, which begins with "[" or "{". */
#ifndef CLI_ADMIN_INPUT_H
#define CLI_ADMIN_INPUT_H

#include "cli/admin/rows.h"

/* Reads a file, "-" is standard input. `is_json`: it must be JSON. Ends the program with a message and its status if the
 * file cannot be read, or is no list of the broker. */
void admin_input_read(admin_rows *rows, const char *path, bool is_json);

#endif
