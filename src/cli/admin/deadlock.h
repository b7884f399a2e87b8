/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Deadlocks in a listing: circles of sessions each of which waits for what the next one holds. A session is a connection.
 * A session that waits for several locks at a time belongs to several coroutines or requests, of which another one may
 * release, so it is in no circle. A waiter for a slot or a permit is in one only if no holder can go on. */
#ifndef CLI_ADMIN_DEADLOCK_H
#define CLI_ADMIN_DEADLOCK_H

#include "cli/admin/listing.h"

/* Sets `blocker` of the items. */
void admin_deadlocks_find(admin_listing *listing);

#endif
