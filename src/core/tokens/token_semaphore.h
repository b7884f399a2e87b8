/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The token semaphore as its callers see it: the queue N.semaphore, whose messages are permits. An acquire
 * consumes one message. The broker alone decides which waiter is served, and in which order; the client does not
 * search, and publishes nothing. Each message in the queue is a permit, also one that other software has
 * published.
 *
 *   asking ─> consuming ─> settling ─> deciding ─> waiting ─> handing_over ─> done, with a lock
 *      ^                                  └── (may not wait) ──> leaving ─> done: busy
 *      └── pausing <── the queue or the channel ended, in any of them
 *
 * A permit that arrives in consuming, settling, deciding or waiting leads to handing_over. A permit that arrived
 * late may be another client's by now; so handing_over asks the broker first whether it is still ours. `settling`
 * reads all that has arrived together with consume-ok. Then one question (two at a quorum queue) decides whether a
 * permit lies ready, or whether the caller has to wait. An acquire that may not wait cancels its consumer before
 * it ends: otherwise the broker would give the next permit to that consumer. */
#ifndef AL_CORE_TOKENS_TOKEN_SEMAPHORE_H
#define AL_CORE_TOKENS_TOKEN_SEMAPHORE_H

#include "amqplocks.h"

struct al_token_semaphore {
  int refs; /* the caller's own reference, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE], queue[AL_NAME_SIZE];
  bool is_quorum;
  bool is_fenced; /* a permit without a fencing token is not handed over */
  bool is_blind;  /* the broker denies asking whether the queue exists */
};

#endif
