/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Asks the management API for queues, consumers and channels, one after the other. So the lists are of moments that
 * differ by as long as the answers take. Queues are those of the moment, and with them the holders of all locks but
 * permits and fast mutexes. Consumers, and numbers of messages, are as old as the broker's statistics: up to 5 s, unless
 * collect_statistics_interval is set.
 *
 * A user with the tag "management" alone is shown the consumers and channels of its own connections, and no error. So
 * the user's tags are asked for, too. */
#ifndef CLI_ADMIN_API_H
#define CLI_ADMIN_API_H

#include "cli/admin/rows.h"

typedef struct admin_api admin_api;

/* `timeout`: how long all answers for one table may take, in nanoseconds. Ends the program with status 64 if `address`
 * is none. */
admin_api *admin_api_new(const char *address, int64_t timeout);

/* The address without user and password. */
const char *admin_api_address(const admin_api *api);

/* Adds the rows to `rows`. Returns AL_OK, or a code and its message, which names the address:
 *   AL_UNREACHABLE, AL_UNAVAILABLE                   it may be there later
 *   AL_AUTH, AL_REFUSED                              the user has no access
 *   AL_NOT_FOUND, AL_TLS, AL_PROTOCOL, AL_LIMIT      something else is at this address */
al_code admin_api_read(admin_api *api, admin_rows *rows, char message[AL_MESSAGE_SIZE]);

/* Once rows were read: what this user is not shown; NULL: nothing. */
const char *admin_api_hidden(const admin_api *api);

void admin_api_drop(admin_api *api);

#endif
