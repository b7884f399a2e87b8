/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reads what the management API returns for /api/queues, /api/consumers and /api/channels, one answer after another, also of
 * one virtual host or one page. The JSON of `rabbitmqctl --formatter json` is read as well. */
#ifndef CLI_ADMIN_JSON_H
#define CLI_ADMIN_JSON_H

#include "cli/admin/rows.h"

/* Adds the rows to `rows`, and counts there those of a list that cannot be read. Changes the input. Returns false if it
 * is no JSON, or no such answer; `why` then says where. */
bool admin_json_read(admin_rows *rows, char *input, size_t length, char why[AL_MESSAGE_SIZE]);

#endif
