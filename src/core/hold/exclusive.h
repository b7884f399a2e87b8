/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The claim on one exclusive queue, from its first declare until it is certainly gone.
 *
 * The queue is declared exclusive and auto-delete and is consumed on a channel of its own, so that closing that channel
 * releases it, its deletion by anybody is told by basic.cancel, and an administrator can leave a message in it. On the
 * same channel, behind it, it may be bound, and a queue that must still exist (`beside`) is looked at by a passive declare:
 * if it is gone, the broker's own answer (it closes the channel) undoes the claim. All of it is written at once and takes
 * one round trip.
 *
 * A queue that must not be there (`door`) is another's exclusive one if it is: to delete it is refused with 405, which undoes
 * the claim as well, and answered with delete-ok if there is none. A passive declare would say the same the wrong way round,
 * and cost the channel, and two lines in the broker's log, whenever all is well.
 *
 * Where the broker's exclusive queues alone are not enough, a bolt (bolt.h) is shut before the declare, and opened behind the
 * delete: whoever was robbed of its queue would otherwise delete what the next one has declared by its name, and, refused,
 * take it away. A reader looks at the bolt of the door.
 *
 *   state        what happens                                         next
 *   ---------    --------------------------------------------------   ---------------------------------------------
 *   CLAIMING     declare-ok, consume-ok, bind-ok, delete-ok of the    HELD
 *                door, the look ok
 *                closed, answering the bolt or our declare            GONE, nothing was made     (code says why);
 *                                                                     CLAIMING without bolt if that cannot be had
 *                closed, answering anything else                      UNDOING                    (code says why)
 *                the door's bolt is shut                              RELEASING                  (contended)
 *                release                                              RELEASING
 *   HELD         basic.cancel: somebody deleted the queue             GONE, lost
 *                closed by the broker                                 UNDOING, lost
 *                release                                              RELEASING
 *                basic.cancel of the bolt                             HELD; the broker is asked for the queue
 *   RELEASING    delete-ok, and cancel-ok of the bolt                 GONE, the channel back in the pool, once the
 *                                                                     consumer was told of its end (closed then
 *                                                                     if there was a basic.cancel of the bolt)
 *                closed, as the queue is not there                    GONE, what was left of it with the channel
 *                closed by the broker otherwise                       UNDOING
 *   UNDOING      see undo.h                                           GONE
 *   any          the link goes down                                   GONE, lost if it was HELD
 *
 * A message of type AL_TYPE_REVOKE asks for the claim back. It is noted, and changes no state: nobody takes a claim away
 * from its holder. One of type AL_TYPE_TOKEN wakes whoever waits with the claim in hand, one of type AL_TYPE_WAITING tells
 * that others wait for the claim. Messages of other types, and those without one, are probes and mean nothing.
 *
 * Once it is GONE its doorbell is told, whichever way it went: only now does waking somebody lead to a free slot.
 *
 * Replies are matched by method and never by order: consume-ok comes last. Until a claim is GONE its name stays in the
 * table of names (names.h). */
#ifndef AL_CORE_HOLD_EXCLUSIVE_H
#define AL_CORE_HOLD_EXCLUSIVE_H

#include "core/hold/bell.h"
#include "core/hold/names.h"
#include "core/hold/undo.h"
#include "core/session/claim.h"
#include "core/wire/channel.h"

/* The replies of the broker to a claim, each told apart by its method and its names. Those that the claim needs are awaited from
 * its beginning, also the ones to a release that was not written yet. */
enum {
  AL_REPLY_DECLARE = 1 << 0,     /* declare-ok of our queue */
  AL_REPLY_CONSUME = 1 << 1,     /* consume-ok */
  AL_REPLY_BIND = 1 << 2,        /* bind-ok */
  AL_REPLY_DOOR = 1 << 3,        /* delete-ok of the door: there is none */
  AL_REPLY_DOOR_BOLT = 1 << 4,   /* declare-ok of the door's bolt, with no consumer */
  AL_REPLY_BESIDE = 1 << 5,      /* declare-ok of the queue that must exist */
  AL_REPLY_CLAIM = (1 << 6) - 1, /* all of those: with the last one the claim is HELD */

  AL_REPLY_DELETE = 1 << 6, /* delete-ok of our queue */
  AL_REPLY_BOLT = 1 << 7,   /* cancel-ok of our bolt's consumer */
  AL_REPLY_CANCEL = 1 << 8  /* basic.cancel: our consumer has ended */
};

typedef struct al_exclusive al_exclusive;
struct al_exclusive {
  al_claim claim;      /* first */
  al_name_entry name;  /* in the table of names, while not GONE */
  al_channel *channel; /* NULL: UNDOING, GONE */

  unsigned awaits; /* replies that have not come, AL_REPLY_… */
  bool looks_anew; /* it was not to be had because the door's bolt is denied, which is remembered by now */
  char key[AL_NAME_SIZE];       /* what it is bound to amq.direct with; "" if it is not */
  char door[AL_NAME_SIZE];      /* must not be there; "" if there is none to go through */
  char beside[AL_NAME_SIZE];    /* must be there; "" if nothing must */
  char bolt[AL_NAME_SIZE];      /* ours; "" where none is needed */
  char door_bolt[AL_NAME_SIZE]; /* must be open; "" where none is needed */

  al_undo undo; /* UNDOING */

  int other_deletes;  /* deletes of other queues on our channel that are still to be answered */
  int woken;          /* tokens that have come */
  bool is_awaited;    /* somebody waits for it, */
  int64_t awaited_at; /* or did then */

  al_bell *bell;            /* leaves when the claim is GONE: its token goes back, or it is rung; NULL */
  char wakes[AL_NAME_SIZE]; /* the queue that gets a token when the claim is GONE; "" */

  /* Methods and the closing of a held claim's channel that are not the claim's own business. NULL: nobody's. */
  void (*on)(al_op *op, const al_event *event);
  al_op *on_op;
};

typedef struct al_exclusive_plan {
  const char *queue;
  const char *ticket; /* NULL: a fresh one */
  const char *beside; /* a queue that must exist; NULL */
  const char *key;    /* to bind it to amq.direct with; NULL: it is not bound */
  const char *door;   /* another's exclusive queue, which must not be there once we are bound; NULL */
  const char *wakes;  /* the queue that gets a token when the claim is gone; NULL */
} al_exclusive_plan;

/* Begins a claim for `op`, which watches it from now on and is its first user. The holder must be open, and the queue not
 * in its table of names. NULL: no channel or no memory, and the operation has failed. */
al_exclusive *al_exclusive_begin(al_op *op, const al_exclusive_plan *plan);

/* Deletes another queue on the held claim's own channel; the answer goes to `on`. */
void al_exclusive_delete_other(al_exclusive *own, const char *queue);

/* Takes over a caller at the doorbell, who is told when the claim is gone; see al_bell_stay(). */
void al_exclusive_ring(al_exclusive *own, al_bell *bell, bool was_quick, bool may_exist);

/* What this connection holds or may hold by this name; NULL if nothing. */
al_exclusive *al_exclusive_find(const al_session *session, const char *queue);

/* What this connection holds, or is about to, bound by this key; NULL if nothing. */
al_exclusive *al_exclusive_find_bound(al_session *session, const char *key);

#endif
