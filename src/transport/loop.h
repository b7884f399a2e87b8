/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Sessions for event loops: both links are over bytes, moved by the loop through sockets of its own; the clock, chance and
 * the look for a fork are the system's, as for the native ones. One thread, so there are no turns. */
#ifndef AL_TRANSPORT_LOOP_H
#define AL_TRANSPORT_LOOP_H

#include "amqplocks.h"

/* `lender`: see al_session_new(). NULL: no memory. */
al_session *al_loop_new(const al_settings *settings, al_session *lender);

/* Moves everything along; gives in how many nanoseconds that is worth doing again although nothing came: AL_NEVER, never
 * less than 0. With `op` that is for the sake of whoever waits for it, otherwise (NULL) for the session's: somebody should
 * then always be doing so. In a child of the process that made the session it only fails `op`. */
int64_t al_loop_pump(al_session *session, al_op *op);

/* The same time, without moving anything. */
int64_t al_loop_wake(al_session *session, const al_op *op);

#endif
