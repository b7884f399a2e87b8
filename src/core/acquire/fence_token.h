/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The fencing token of a lock: a number that is larger than that of every earlier holder. A part of operations: it
 * draws a number from the lock's fence (queue/fence_draw.h), and makes the fence if there is none, or if it is damaged
 * (queue/fence_maker.h). An administrator draws a number to see that the fence is there, and works.
 *
 * An acquire holds the lock's queue B by then, and asks afterwards whether B is still its own. Only that makes the
 * numbers grow in the order of the holders (docs/specification.md, 7). */
#ifndef AL_CORE_ACQUIRE_FENCE_TOKEN_H
#define AL_CORE_ACQUIRE_FENCE_TOKEN_H

#include "core/queue/fence_draw.h"
#include "core/queue/fence_maker.h"

typedef struct al_fence_token {
  al_op *op;
  const char *fence; /* the caller's text, which must stay valid */
  int64_t before;    /* the largest number of this fence that was seen when the draw began */
  al_fence_draw draw;
  al_fence_maker maker;
  int64_t until; /* all of it ends by then: twice the session's timeout */
  bool
      mends; /* set by the caller: as of a maker (queue/fence_maker.h); a fence with smaller numbers is replaced, too */
  bool is_making;
  int made; /* how often a fence was made */
} al_fence_token;

void al_fence_token_begin(al_fence_token *token, al_op *op, const char *fence);

/* Returns the number. Returns 0 while there is none yet, or if the operation has failed: as al_fence_draw_begin() and
 * al_fence_maker_begin() say; also with CONFLICT if the number is not larger than one seen before. */
int64_t al_fence_token_poll(al_fence_token *token);

/* Why there is no number yet, in words. */
const char *al_fence_token_why(const al_fence_token *token);

void al_fence_token_cancel(al_fence_token *token);

#endif
