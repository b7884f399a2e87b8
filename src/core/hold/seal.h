/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The seal: a queue beside the queue of a mutex, which tells how the last lock ended (docs/specification.md, 1.7).
 *
 * An acquire with al_acquire_options.settle puts a seal on the mutex that it has got, before its caller gets the lock.
 * The seal Q-seal is durable, and expires so long after its last consumer has gone. Its holder consumes from it, and a
 * release deletes it. So a seal without a consumer means that the last holder's connection ended, or that its lock was
 * lost: the holder may not know yet, and may still be at work.
 *
 * Such an acquire first looks whether there is a seal. It does so when the mutex is its own, so nobody comes in between.
 * It keeps the mutex until the seal is gone, or until it has waited for its own time: a question may renew the lease of
 * the queue, and the node of the queue may be down. While that is down, each acquire waits for its own time, and puts no
 * seal on.
 *
 * A seal has a channel of its own, so the broker may handle the end of the lock before that of the seal. The next holder
 * then finds the seal for a moment longer. Nor is its own seal deleted in place of the one before: a seal with a consumer
 * is not. One without a consumer yet may be; then the consume is refused, and the seal is put on again. */
#ifndef AL_CORE_HOLD_SEAL_H
#define AL_CORE_HOLD_SEAL_H

#include "core/hold/lock.h"

/* True if the lock, which was retained with its seal, has one for this time. */
bool al_lock_is_sealed(const al_lock *lock, int64_t settle);

/* Begins an operation, a part of an acquire: it ends when the lock, a mutex, has settled, and has its seal. `waits`: the
 * acquire does. Otherwise the operation fails (AL_BUSY) if there is a seal. It also does so when the mutex is lost before
 * its end, and the connection is not. What fails gives the lock back. NULL: no memory. */
al_op *al_sealing_begin(al_lock *lock, int64_t settle, bool waits);

#endif
