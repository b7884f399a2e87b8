/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The gate of a semaphore: the mutex of clients that take several slots or permits at once (gather.h). They take them
 * one after the other, so no two of them wait for what the other one has taken. */
#ifndef AL_CORE_LOCKS_GATE_H
#define AL_CORE_LOCKS_GATE_H

#include "core/session/session.h"

/* Begins to acquire it. `name`: of the semaphore. `queue`: the exclusive queue of the client that has the gate. `bell`:
 * the queue that wakes clients that wait for it. al_op_lock() returns it. NULL: no memory. */
al_op *al_gate_enter(al_session *session, const char *name, const al_lock_options *options, const char *queue,
                     const char *bell, const al_acquire_options *how);

#endif
