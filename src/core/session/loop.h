/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The life of a session: made, pumped, closed, freed. A pump reads both links, gives each operation its time, retries what
 * could not be undone, and writes. */
#ifndef AL_CORE_SESSION_LOOP_H
#define AL_CORE_SESSION_LOOP_H

#include "core/session/session.h"

/* `seed` feeds every choice by chance. `lender`: whose prober it asks by, which must be a session to the same broker, in the
 * same thread; NULL: it has one of its own. NULL: no memory. */
al_session *al_session_new(const al_settings *settings, uint64_t seed, al_session *lender);

/* Whether the prober comes and goes with this session. */
bool al_session_owns_prober(const al_session *session);

/* Before anything is opened: these nodes of one cluster instead of the one it was made with, which is among them. The prober
 * of another session stays as it is. False: no memory. */
bool al_session_list_nodes(al_session *session, const al_settings *settings, size_t count, bool is_shuffled);

/* See al_connection_excuse. */
void al_session_excuse(al_session *session, int64_t pumped_at);

/* Reads both links, moves every operation along, writes. `now` is when it begins. */
void al_session_pump(al_session *session, int64_t now);
int64_t al_session_wake(const al_session *session);

/* The earliest deadline a caller has given; AL_NEVER. */
int64_t al_session_deadline(const al_session *session);

#endif
