/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Permits of token semaphores, and fast mutexes: both are taken from a queue by consuming one message. The broker
 * alone decides which waiter is served, and in which order; the client does not search.
 *
 *   asking ─> consuming ─> settling ─> deciding ─> waiting ─> handing_over ─> done, with a lock
 *      ^                      ^             │ └── (may not wait) ──> leaving ─> done: busy
 *      │                      └─ ringing <─ seeking_rival: at a fast mutex that seems deserted
 *      └── pausing <── the queue or the channel ended, in any of them
 *
 * A permit that arrives in any state from consuming to waiting leads to handing_over, and from there to a lock. A
 * permit that arrived late may be another client's by now; so handing_over asks the broker first whether it is still
 * ours. `settling` reads all that has arrived together with consume-ok. Then one question (two at a quorum queue)
 * decides whether a permit lies ready, or whether the caller has to wait. An acquire that may not wait cancels its
 * consumer before it ends: otherwise the broker would give the next permit to that consumer.
 *
 * A fast mutex whose token this object knows (permit.h) is consumed from without a declare. If nothing comes, an
 * acquire that may not wait declares it in `settling`; one that waits does so a moment later. If the queue is gone, the
 * next try declares it first.
 *
 * Only a fast mutex publishes. If its queue had no token and no consumer, and nothing has come, the acquire asks whether
 * the plain mutex of this name is held (seeking_rival), and puts a token into the queue (ringing). The token comes back
 * if the prober's node has not heard of a new queue; then the acquire puts it there a moment later. An acquire that may
 * wait goes on with another prober if it loses one. A client that waits puts another token there whenever `poll` has
 * passed: the token may have been purged. The queue keeps at most one that is ready.
 *
 * An acquire of a quorum mutex begins with the question whether there is a queue (looking). Its claim is HELD when the
 * mutex is proved. A waiter asks how the queue does (al_permit_look()), and seldom puts a token there. */
#ifndef AL_CORE_TOKENS_TAKING_H
#define AL_CORE_TOKENS_TAKING_H

#include "amqplocks.h"
#include "core/tokens/permit.h"

typedef struct al_takeable al_takeable;

typedef struct al_takeable_kind {
  al_lock_kind lock;
  bool is_mutex;                 /* one holder at a time, and its clients put the token into the queue */
  const char *standing, *coming; /* what a waiter waits for; the same, when a permit has come */
  /* The beginning of the message of a failure. */
  void (*failure_text)(const al_takeable *, al_code, char out[AL_MESSAGE_SIZE]);
} al_takeable_kind;

/* The first member of al_token_semaphore and al_fast_mutex. */
struct al_takeable {
  const al_takeable_kind *kind;
  int refs; /* the caller's own reference, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE], queue[AL_NAME_SIZE];
  char rival[AL_NAME_SIZE]; /* the queue of another kind of lock, which must not exist; "": there is none */
  al_source source;
  bool is_fenced;     /* a permit without a fencing token is not handed over */
  char token[40];     /* a fast mutex: the token that came last; "": none, or it has no id */
  int64_t counted_at; /* a fast mutex: when its declare was answered last; or long ago */
  bool is_known;      /* a quorum mutex: its queue exists, or is being made */
  int64_t new_until;  /* a quorum mutex: see al_proof */
  bool cannot_ask;    /* the broker denies asking whether the queue exists */
};

/* Makes a thing of `size` bytes, which begin with an al_takeable. The caller then sets its queue. NULL: no memory. */
void *al_takeable_new(al_session *session, const al_takeable_kind *kind, size_t size, const char *name);
void al_takeable_drop(al_takeable *from);

al_op *al_takeable_acquire(al_takeable *from, const al_acquire_options *options);

#endif
