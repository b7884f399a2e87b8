/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Makes a fence (fence_draw.h): the queue, and its message, which is published once in the queue's life. A fence that has
 * lost its message, or has others, is deleted and made anew, with a larger base.
 *
 * A maker that was stopped must not publish its message, with an older base, into a fence that another one has made
 * since. So everything is done on the session's maker connection (session/fence_links.h), which is ended with the work: on
 * it the maker first declares an exclusive queue, F-maker. The broker removes that queue with the connection, and
 * refuses it to the next maker before.
 *
 *   entering    declares F-maker; if it is refused: doubting
 *   doubting    is F-maker a queue that is not exclusive? SQUATTED. Otherwise another client has it: entering, after a
 *               pause
 *   looking     does the fence exist? If not: making
 *   peeking     is its message there, and the only one? If so: done. If there are others, or it was published again,
 *               or was not tried: removing; but a message without a base is of other software: SQUATTED. If there is
 *               none for long: asking
 *   asking      (not if it `mends`) does F-unfinished exist? If so, an earlier maker did not come to its end: removing.
 *               If not, a policy of the broker removes the message: CONFLICT
 *   removing    deletes the fence
 *   making      declares F-unfinished and the fence, publishes the message, and awaits the confirm
 *   trying      draws 22 numbers, all in one write: a limit of deliveries that a policy sets ends the fence at once:
 *               CONFLICT
 *   finishing   deletes F-unfinished, and closes the connection
 *
 * If the connection is lost, all of it begins anew, until twice the session's timeout is over. */
#ifndef AL_CORE_QUEUE_FENCE_MAKER_H
#define AL_CORE_QUEUE_FENCE_MAKER_H

#include "core/queue/fence_draw.h"
#include "core/session/op.h"
#include "core/wire/channel.h"

typedef struct al_fence_maker al_fence_maker;
struct al_fence_maker {
  al_op *op;
  const char *fence; /* the caller's text, which must stay valid */
  int64_t least;     /* the base is at least this */
  int64_t until;     /* when it fails */
  bool is_made;
  bool mends; /* set by the caller: any other message is replaced, and one that is gone, also by a policy */

  al_channel *channel;                              /* NULL: nothing is under way */
  void (*next)(al_fence_maker *, const al_event *); /* handles the answer that is awaited; NULL: it rests */
  void (*again)(al_fence_maker *);                  /* called at `again_at` */
  int64_t again_at;
  int64_t empty_since; /* AL_NEVER: the fence was not seen empty */
  int tries, asked;    /* how many numbers were drawn, and are being drawn */
  al_backoff pause;
  char why[160]; /* why it is not made yet */
};

/* `least`: no number of the fence will be smaller. `empty_since`: when the fence was first seen without its message;
 * AL_NEVER. The operation fails with UNAVAILABLE when the time is over, and with CONFLICT, BLOCKED, REFUSED,
 * SQUATTED. */
void al_fence_maker_begin(al_fence_maker *maker, al_op *op, const char *fence, int64_t least,
                          int64_t empty_since);
bool al_fence_maker_poll(al_fence_maker *maker);
void al_fence_maker_cancel(al_fence_maker *maker);

#endif
