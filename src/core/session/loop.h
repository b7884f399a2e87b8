/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The life of a session: it is made, pumped, closed and freed.
 *
 * A pump is one turn of the session's loop. It reads all links, checks the timers of each operation, retries to undo
 * claims that could not be undone, and writes. */
#ifndef AL_CORE_SESSION_LOOP_H
#define AL_CORE_SESSION_LOOP_H

#include "core/session/session.h"

/* `seed` begins the session's random numbers. Returns NULL if there is no memory. */
al_session *al_session_new(const al_settings *settings, uint64_t seed);

/* Gives the session a list of nodes of one cluster, instead of the node that it was made with, which is in the list.
 * Call it before anything is opened. Returns false if there is no memory. */
bool al_session_list_nodes(al_session *session, const al_settings *settings, size_t count, bool is_shuffled);

/* See al_heartbeat_excuse. */
void al_session_excuse(al_session *session, int64_t pumped_at);

/* See above. `now` is the time at which the pump begins. */
void al_session_pump(al_session *session, int64_t now);
/* When to pump next although nothing has arrived; AL_NEVER. */
int64_t al_session_wake(const al_session *session);

/* The earliest deadline of an operation; AL_NEVER if there is none. */
int64_t al_session_deadline(const al_session *session);

#endif
