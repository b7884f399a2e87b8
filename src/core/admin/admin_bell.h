/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The doorbell as administrators keep it: declared before the first slot, given a token for each slot, deleted after the
 * last. It is a classic queue, whatever the slots are: one of quorum type that has lost its majority ends the connection of
 * each client that consumes there. Version 0.1.0 made such ones beside quorum slots; a repair replaces them.
 *
 * It only wakes, so nothing here may keep a semaphore from being administered: tokens that cannot be published are done
 * without, and waiters find free slots by their own looks. */
#ifndef AL_CORE_ADMIN_ADMIN_BELL_H
#define AL_CORE_ADMIN_ADMIN_BELL_H

#include "core/queue/inspect.h"
#include "core/queue/publish.h"

typedef struct al_admin_bell {
  al_op *op;
  al_inspect inspect;
  al_channel *check; /* on which it is asked of what kind it is; NULL: answered */
  bool is_other_kind;
  al_publish tokens;
} al_admin_bell;

/* Looks whether there is one; al_admin_bell_poll_find() is then looked at in every step of `op`. */
void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name);
bool al_admin_bell_poll_find(const al_admin_bell *bell); /* false also when the operation has failed */
bool al_admin_bell_exists(
    const al_admin_bell *bell); /* true also if it is down with its node: not to be declared */
int al_admin_bell_ready(const al_admin_bell *bell); /* tokens in it that nobody has in hand */

/* One that exists: asks whether it is a classic queue, by a declare on a channel that holds nothing, as the answer may
 * close that. al_admin_bell_poll_check() is then looked at in every step of `op`. */
void al_admin_bell_check(al_admin_bell *bell);
bool al_admin_bell_poll_check(const al_admin_bell *bell); /* false also when the operation has failed */

/* It was deleted. */
void al_admin_bell_note_deleted(al_admin_bell *bell);

/* Declares it on the channel given; the answer goes to that channel's owner. */
void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel);

/* Publishes so many tokens; al_admin_bell_poll_ring() is then looked at in every step of `op`. */
void al_admin_bell_ring(al_admin_bell *bell, int tokens);
bool al_admin_bell_poll_ring(al_admin_bell *bell);

void al_admin_bell_cancel(al_admin_bell *bell);
void al_admin_bell_free(al_admin_bell *bell);

#endif
