/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The table of names: the exclusive queues that the session's holder connection holds, or may hold.
 *
 * RabbitMQ lets a connection declare its own exclusive queue again. So only this table keeps two callers on one
 * connection apart. It also keeps a new claim from meeting a queue that is still going away. A name stays in the
 * table until its claim is GONE. */
#ifndef AL_CORE_HOLD_NAMES_H
#define AL_CORE_HOLD_NAMES_H

#include "core/session/claim.h"

/* A claim's place in the table. */
typedef struct al_name_entry {
  const al_claim *claim;
  struct al_name_entry *next; /* in its bucket */
} al_name_entry;

/* Called by claims: when they begin, and when they are GONE. False: no memory. */
bool al_names_enter(al_name_entry *entry, const al_claim *claim);
void al_names_remove(al_name_entry *entry);

/* The claim on this queue; NULL if there is none. */
const al_claim *al_names_find(const al_session *session, const char *queue);

/* True if there is any claim on an exclusive queue: the connection holds, or may hold, something besides permits. */
bool al_names_are_any(const al_session *session);

/* The number of claims that are GONE so far. */
uint64_t al_names_removed(const al_session *session);

#endif
