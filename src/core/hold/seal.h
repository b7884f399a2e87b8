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

#include "core/base/backoff.h"
#include "core/session/claim.h"
#include "core/session/probe.h"

/* A part of an acquire. */
typedef struct al_sealing {
  al_op *op;
  al_lock *lock;
  int64_t settle;
  int64_t looks_at;    /* when to look whether there is a seal; AL_NEVER: it looks, or has looked */
  int64_t waits_until; /* the seal of an earlier lock counts until then */
  bool was_sealed;     /* one was there */
  al_backoff pause;
  al_probes probes;
  char queue[AL_NAME_SIZE];
  al_claim *seal; /* which is being put on; NULL */
} al_sealing;

/* `lock` is the operation's, and of a mutex. */
void al_sealing_begin(al_sealing *sealing, al_op *op, al_lock *lock, int64_t settle);

/* True when the lock has its seal, or is not held any more. */
bool al_sealing_poll(al_sealing *sealing);
void al_sealing_cancel(al_sealing *sealing);
void al_sealing_free(al_sealing *sealing);

#endif
