/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the native transport offers beside amqplocks.h, and to its keeper. */
#ifndef AL_TRANSPORT_NATIVE_H
#define AL_TRANSPORT_NATIVE_H

#include <poll.h>

#include "amqplocks.h"
#include "transport/keeper.h"

/* al_session_abort(), and the end of the keeper and of the descriptor for polling. */
void al_native_retire(al_session *);

/* For the keeper, with the turn held: what to poll for the session's links, how many there are; and when the session's
 * owner was last inside the library. */
int al_native_watch(const al_session *, struct pollfd links[2]);
int64_t al_native_owner_seen(const al_session *);

/* For the keeper, without the turn: whether the owner waits for it. A mutex is not fair, and a keeper whose peer never pauses
 * wants the turn again as soon as it has given it. */
bool al_native_is_wanted(const al_session *);
al_keeper *al_native_keeper(const al_session *);

#endif
