/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Waiting until none of some slots is held ("Waiting on Lock Holders"): the B queues are asked for again and again. When
 * none is seen a barrier is passed and they are asked for once more, since here *absent* decides; and where the broker needs
 * bolts, whose is shut is held, too.
 *
 * The question may carry a request to let go: then it is published, with every look, and whoever holds a slot at that
 * moment hears it. While the broker reads no publishers nothing but the question is asked, by passive declares. */
#ifndef AL_CORE_ADMIN_HOLDER_WAIT_H
#define AL_CORE_ADMIN_HOLDER_WAIT_H

#include "core/base/backoff.h"
#include "core/hold/bolt_check.h"
#include "core/queue/barrier.h"
#include "core/session/op.h"
#include "core/session/probe.h"

typedef enum al_request {
  AL_REQUEST_NOTHING, /* holders are waited for */
  AL_REQUEST_REVOKE,  /* they are asked to let go, and waited for */
  AL_REQUEST_ONCE,    /* they are asked to let go, and not waited for */
  AL_REQUEST_HOLDER   /* the same, and there must be one; otherwise AL_NOT_HELD */
} al_request;

typedef struct al_holder_wait {
  al_op *op;
  const char *name;
  int *slots; /* a copy */
  size_t count;
  al_answer *seen; /* the last that showed anybody, for people */
  al_request request;
  al_probes probes;
  al_barrier barrier;
  al_bolt_check bolts;
  al_backoff wait;
  bool is_sure;   /* the barrier lies before the questions under way */
  bool was_heard; /* a request has reached a queue */
  int refusals;   /* looks in a row that ended with a queue that refuses, or is going away */
} al_holder_wait;

/* Takes over `op`, which is finished by it. The links must be open. Its place in memory must not change. */
void al_holder_wait_begin(al_holder_wait *holders, al_op *op, const char *name, const int *slots,
                          size_t count, al_request request);
void al_holder_wait_explain(const al_holder_wait *holders, int64_t timeout, char out[AL_MESSAGE_SIZE]);
void al_holder_wait_cancel(al_holder_wait *holders);
void al_holder_wait_free(al_holder_wait *holders);

#endif
