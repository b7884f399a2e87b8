/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A turn is mutual exclusion between the threads that use a session. The core knows no threads. A transport that has
 * some says how a turn is taken and given back. A function of amqplocks.h that uses data which a pump may change
 * holds the turn meanwhile. Turns may be nested. */
#ifndef AL_CORE_SESSION_TURN_H
#define AL_CORE_SESSION_TURN_H

#include "amqplocks.h"

al_session *al_turn_take(al_session *session);
void al_turn_give(al_session **session);

/* Holds the turn until the end of the block, which must not free the session. */
#define AL_TURN(session)                                                                                     \
  __attribute__((cleanup(al_turn_give), unused)) al_session *al_turn_taken = al_turn_take(session)

#endif
