/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The claim on one exclusive queue, from its first declare until it is certainly gone (docs/specification.md, 1.4).
 *
 * The queue is declared exclusive and auto-delete, and consumed, on a channel of its own. For this reason closing
 * that channel releases it, basic.cancel tells when anybody deletes it, and an administrator can leave a message in
 * it. On the same channel, and behind the consume, the claim may bind its queue. It may also check a queue that must
 * still exist (`beside`), by a passive declare: if that queue is gone, the broker closes the channel, and this undoes
 * the claim. All requests are written at once and take one round trip.
 *
 * A claim may require that a queue does not exist: the door (`door`), which is another connection's exclusive queue
 * (rwlock.h). The claim asks the broker to delete it. If the door exists, the broker refuses with 405, which undoes
 * the claim as well. If not, it answers delete-ok. A passive declare would tell the same the wrong way round:
 * whenever all is well it would cost the channel, and two lines in the broker's log.
 *
 * Before RabbitMQ 4.3 an exclusive queue alone may not keep other clients out, and the claim also has a bolt
 * (bolt.h): a second queue, which is shut by consuming from it exclusively. The claim shuts the bolt before its
 * declare, and opens it behind the delete: otherwise a holder that was robbed of its queue would delete the queue
 * that the next holder has declared under the same name, be refused, and take it away by that. A reader has no bolt
 * of its own. It declares the bolt of the door passively: if the bolt has a consumer, a writer has shut it. (`moves` in
 * holder_queue.c has the states.)
 *
 * Messages in the queue are told apart by their type. AL_TYPE_REVOKE asks for the claim back: it is noted, and
 * changes no state, because nobody takes a claim away from its holder. AL_TYPE_TOKEN wakes a caller that waits while
 * it has the claim (the writer behind the door). AL_TYPE_WAITING tells that others wait for the claim. Messages of
 * other types, and those without one, are probes and mean nothing.
 *
 * A claim whose lock was released may be retained: it stays HELD, for the next acquire of this session, until its time
 * is over or any message comes. Each message means that somebody wants it, as all clients that do ask for the queue
 * first.
 *
 * When the claim is GONE, whatever the way, its doorbell (bell.h) is told: only from then on does waking a waiter
 * lead to a free slot.
 *
 * A reply is recognised by its method and the names in it, not by its place in the order of the requests: RabbitMQ
 * sends consume-ok after the replies to later requests.
 *
 * RabbitMQ lets a connection declare its own exclusive queue again. So only the session's table of names
 * (al_exclusive_find) keeps two callers on one connection apart. It also keeps a new claim from meeting a queue that is
 * still going away: a name stays in the table until its claim is GONE. */
#ifndef AL_CORE_HOLD_HOLDER_QUEUE_H
#define AL_CORE_HOLD_HOLDER_QUEUE_H

#include "core/hold/bell.h"
#include "core/hold/undo.h"
#include "core/session/check.h"
#include "core/session/claim.h"
#include "core/wire/channel.h"

/* The replies of the broker to a claim. The set `awaits` holds all replies that have not come yet, from the beginning
 * of the claim: also those to the requests of its release, which is written later. */
enum {
  AL_REPLY_DECLARE = 1 << 0,     /* declare-ok of our queue */
  AL_REPLY_CONSUME = 1 << 1,     /* consume-ok */
  AL_REPLY_BIND = 1 << 2,        /* bind-ok */
  AL_REPLY_DOOR = 1 << 3,        /* delete-ok of the door: there is none */
  AL_REPLY_DOOR_BOLT = 1 << 4,   /* declare-ok of the door's bolt, with no consumer */
  AL_REPLY_BESIDE = 1 << 5,      /* declare-ok of the queue that must exist */
  AL_REPLY_CLAIM = (1 << 6) - 1, /* all of these: with the last of them the claim is HELD */

  AL_REPLY_DELETE = 1 << 6, /* delete-ok of our queue */
  AL_REPLY_BOLT = 1 << 7,   /* cancel-ok of our bolt's consumer */
  AL_REPLY_CANCEL = 1 << 8  /* basic.cancel: our consumer has ended */
};

typedef struct al_exclusive al_exclusive;
struct al_exclusive {
  al_claim claim;      /* first */
  al_channel *channel; /* NULL: UNDOING, GONE */
  al_check check;      /* asks on another channel whether the queue is still ours */

  unsigned awaits; /* replies that have not come, AL_REPLY_… */
  /* it was refused because the door's bolt is denied; that is remembered by now, so a new search may succeed */
  bool learned_denial;
  char key[AL_NAME_SIZE];       /* its binding key at amq.direct; "" if it is not bound */
  char door[AL_NAME_SIZE];      /* must not exist; "" if there is none */
  char beside[AL_NAME_SIZE];    /* must exist; "" if there is none */
  char bolt[AL_NAME_SIZE];      /* ours; "" where none is needed */
  char door_bolt[AL_NAME_SIZE]; /* must be open; "" where none is needed */

  al_undo undo; /* UNDOING */

  int other_deletes;        /* deletes of other queues on our channel that are not answered yet */
  int woken;                /* tokens that arrived */
  int64_t awaited_at;       /* when others last waited for it, as far as they told; AL_NEVER */
  int64_t retain, began_at; /* so long after it was begun it may be retained */
  /* Its lock was released, and it waits for the next acquire; AL_NEVER: it does not. */
  int64_t retained_until;

  /* its holder's place; when the claim is GONE its token goes back, or it is rung; NULL */
  al_bell *bell;
  char wakes[AL_NAME_SIZE]; /* the queue that gets a token when the claim is GONE; "" */

  /* Called for methods that are not the claim's own business, and when the channel of a held claim is closed. NULL:
   * nobody needs them. */
  void (*on)(al_op *op, const al_event *event);
  al_op *on_op;
};

typedef struct al_exclusive_plan {
  const char *queue;
  const char *ticket; /* NULL: the claim makes one */
  const char *beside; /* a queue that must exist; NULL */
  const char *key;    /* its binding key at amq.direct; NULL: it is not bound */
  const char *door;   /* another's exclusive queue, which must not exist once ours is bound; NULL */
  const char *wakes;  /* the queue that gets a token when the claim is gone; NULL */
  int64_t retain;     /* it may be retained until so many nanoseconds after it was begun; 0: it is not */
} al_exclusive_plan;

/* Begins a claim for `op`, which watches it from now on and is its first user. The holder must be open. The queue
 * must not be in the table of names. NULL: no channel or no memory, and the operation has failed. */
al_exclusive *al_exclusive_begin(al_op *op, const al_exclusive_plan *plan);

/* Deletes another queue on the held claim's own channel. The answer goes to `on`. */
void al_exclusive_delete_other(al_exclusive *own, const char *queue);

/* Takes over its caller's place at the doorbell, which is told when the claim is gone; see al_bell_settle(). */
void al_exclusive_ring(al_exclusive *own, al_bell *bell, bool was_quick, bool may_exist);

/* What this connection holds, or may hold, under this name; NULL if nothing. */
al_exclusive *al_exclusive_find(const al_session *session, const char *queue);

/* The claim on this queue if it is retained; NULL. al_exclusive_take() takes it back: its caller is a user of it then. */
al_exclusive *al_exclusive_retained(const al_session *session, const char *queue);
void al_exclusive_take(al_exclusive *own);

/* The number of claims that are GONE so far. */
uint64_t al_exclusive_gone(const al_session *session);

/* What this connection holds, or is claiming, bound by this key; NULL if nothing. */
al_exclusive *al_exclusive_find_bound(al_session *session, const char *key);

#endif
