/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The token semaphore as those who lock see it: the queue N.semaphore, from which each takes one message. Whose turn it is,
 * and who comes first, is the broker's business; nobody looks for anything, and nothing is published. Whatever is in the
 * queue is a permit, whoever put it there.
 *
 *   asking ─> consuming ─> settling ─> deciding ─> waiting ─> handing_over ─> done, with a lock
 *      ^                                  └── (may not wait) ──> leaving ─> done: busy
 *      └── pausing <── the queue went, or the channel, in any of them
 *
 * A permit ends any of the four before handing_over, where it is made sure of if it came late. What has arrived together
 * with consume-ok is read first; then a question (of a quorum queue: two) decides whether a permit lies ready, or whether
 * there is somebody to wait for. Who may not wait leaves nothing behind: no consumer, which would be given the next
 * permit. */
#ifndef AL_CORE_TOKENS_TOKEN_SEMAPHORE_H
#define AL_CORE_TOKENS_TOKEN_SEMAPHORE_H

#include "amqplocks.h"

struct al_token_semaphore {
  int refs; /* the owner outside, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE], queue[AL_NAME_SIZE];
  bool is_quorum;
  bool is_blind; /* the broker denies us to ask whether the queue is there */
};

#endif
