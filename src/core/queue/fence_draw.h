/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Draws a number from a fence. A fence is a quorum queue with one message. The broker counts, in the queue's
 * replicated log, how often that message was delivered and came back. A draw gets the message and gives it back, and
 * its number is the message's base plus that count: each draw's number is larger than all numbers drawn before.
 * Nothing is published, so no alarm prevents a draw, and a client without a majority of the nodes draws nothing.
 *
 *   state      what the broker does                                           next
 *   --------   ------------------------------------------------------------   --------------------------------
 *   PENDING    sends the message                                              DRAWN; DAMAGED if it is no fence's, or
 *                                                                             was published again
 *              the queue is empty: another client's draw is under way, or     PENDING, after a pause; MISSING if
 *              the message is gone                                            that lasts
 *              closes the channel: there is no such queue                     ABSENT
 *              closes the channel or the connection, or gives no answer       PENDING, on another connection if
 *                                                                             need be, until the time is over
 *
 * While the queue has no leader, RabbitMQ may end the whole connection. So draws use a connection that holds no lock,
 * and never publishes (session/fence_links.h). */
#ifndef AL_CORE_QUEUE_FENCE_DRAW_H
#define AL_CORE_QUEUE_FENCE_DRAW_H

#include "core/session/op.h"
#include "core/wire/channel.h"

typedef enum al_fence_draw_state {
  AL_DRAW_PENDING, /* or the operation has failed */
  AL_DRAW_DRAWN,
  AL_DRAW_ABSENT,  /* there is no fence */
  AL_DRAW_MISSING, /* the fence has lost its message, or has none yet */
  AL_DRAW_DAMAGED  /* the fence has other messages */
} al_fence_draw_state;

typedef struct al_fence_draw {
  al_op *op;
  const char *fence; /* the caller's text, which must stay valid */
  al_fence_draw_state state;
  al_channel *channel; /* a draw is under way; NULL */
  int64_t until;       /* when the draw fails */
  int64_t asked_at, next_at;
  int64_t empty_since; /* AL_NEVER: it was not seen empty */
  bool was_down;       /* the connection was lost under a draw */
  al_backoff pause;
  int64_t number; /* DRAWN */
  char why[160];  /* why there is none yet */
} al_fence_draw;

/* Draws until the session's timeout is over. Then the operation fails with UNAVAILABLE. It also fails with REFUSED,
 * SQUATTED, CONFLICT, and with what prevents the connection. */
void al_fence_draw_begin(al_fence_draw *draw, al_op *op, const char *fence);
al_fence_draw_state al_fence_draw_poll(al_fence_draw *draw);
void al_fence_draw_cancel(al_fence_draw *draw);

/* Numbers stay below 2^53, so that a double has them exactly. */
#define AL_FENCE_MOST (INT64_C(1) << 53)

/* So many numbers are drawn when a fence is made, and nobody gets them: the default limit of deliveries, 20, and two
 * more. A message that came back less often was published after that, or its maker did not come to its end. */
#define AL_FENCE_TRIES 22

/* The message's base and count, as the only one in its queue, whoever published it; 0: it has none. */
int64_t al_fence_reading(const al_content *content);

/* The number that this message of a fence stands for; 0: it is not a fence's message, or was published again. */
int64_t al_fence_number(const al_content *content);

/* True if the message is a fence's, and has no number left below 2^53. The operation has then failed with CONFLICT: a
 * fence that were made anew would begin with smaller numbers. */
bool al_fence_fail_used_up(al_op *op, const char *fence, const al_content *content);

/* How long a fence may be empty before its message counts as missing: half the session's timeout. */
int64_t al_fence_empty_for(const al_session *session);

#endif
