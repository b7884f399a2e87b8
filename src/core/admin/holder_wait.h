/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Waiting until nobody holds any of some slots (docs/specification.md, 8.5). The holder of slot i is the client whose
 * exclusive queue N-i-B exists. So the operation asks repeatedly which B queues exist, with exponential backoff.
 *
 * The answer *absent* decides here, so it must be certain. When all B queues are absent, the operation passes a
 * barrier (core/queue/barrier.h), which brings the view of the broker's node up to date, and asks once more. Some
 * brokers also need bolts (core/hold/bolt.h). A bolt is a queue beside B that the holder consumes from
 * exclusively; it is shut while a holder does. There a slot whose bolt is shut counts as held, also if its B queue
 * is absent.
 *
 * The question may carry a request to release the lock. Then each question is published as a message to the B
 * queue, and the client that holds the slot at that moment receives it. While the broker reads no publishers
 * (memory or disk alarm), passive declares ask the question alone. */
#ifndef AL_CORE_ADMIN_HOLDER_WAIT_H
#define AL_CORE_ADMIN_HOLDER_WAIT_H

#include "core/base/backoff.h"
#include "core/hold/bolt_check.h"
#include "core/queue/barrier.h"
#include "core/session/op.h"
#include "core/session/probe.h"

/* What is held. */
typedef enum al_held {
  AL_HELD_SLOTS,
  AL_HELD_MUTEX,
  AL_HELD_DOOR, /* by the writer of a readers-writer lock */
  AL_HELD_READERS /* asked for by the key that their queues are bound with; not during an alarm, as no passive declare asks
                     for a key */
} al_held;

typedef enum al_request {
  AL_REQUEST_NOTHING, /* wait until the holders have released */
  AL_REQUEST_REVOKE,  /* ask the holders to release, and wait until they have */
  AL_REQUEST_ONCE,    /* ask the holders to release, and do not wait */
  AL_REQUEST_HOLDER   /* as ONCE, but without a holder the operation fails with AL_NOT_HELD */
} al_request;

typedef struct al_holder_wait {
  al_op *op;
  const char *name;
  al_held held;
  int *slots; /* a copy; not used unless slots are held */
  size_t count;
  char nobody[AL_NAME_SIZE]; /* a key that no queue is bound with, asked for beside that of the readers */
  al_answer *seen;           /* the last answers that showed a holder, for messages */
  al_request request;
  al_probes probes;
  al_barrier barrier;
  al_bolt_check bolts;
  al_backoff wait;
  bool is_sure;   /* the questions under way were asked after the barrier */
  bool was_heard; /* a request has reached a queue */
  int refusals;   /* checks in a row in which a queue refused messages or was ending */
} al_holder_wait;

/* How its questions are asked: which links it needs. */
al_probing al_holder_wait_probing(const al_session *session, al_held held, al_request request);

/* Takes over the steps of `op` and ends it. `holders` must stay at its place in memory. `slots`: of a semaphore. */
void al_holder_wait_begin(al_holder_wait *holders, al_op *op, const char *name, const int *slots,
                          size_t count, al_request request);
/* The same for another kind of lock, which has one queue or one key. */
void al_holder_wait_begin_other(al_holder_wait *holders, al_op *op, al_held held, const char *name,
                                al_request request);
void al_holder_wait_explain(const al_holder_wait *holders, int64_t timeout, char out[AL_MESSAGE_SIZE]);
void al_holder_wait_cancel(al_holder_wait *holders);
void al_holder_wait_free(al_holder_wait *holders);

#endif
