/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A claim: one exclusive queue, from its first declare until it is certainly gone. Locks and mutexes are claims that
 * succeeded.
 *
 * The queue is declared exclusive and auto-delete and is consumed on a channel of its own, so that closing that channel
 * releases it, its deletion by anybody is told by basic.cancel, and an administrator can leave a message in it. On the
 * same channel, behind it, the queues that must still exist are looked at by passive declares: if one is gone, the
 * broker's own answer (it closes the channel) undoes the claim. All of it is written at once and takes one round trip.
 *
 *   state        what happens                                         next
 *   ---------    --------------------------------------------------   ---------------------------------------------
 *   CLAIMING     declare-ok, consume-ok, every look ok                HELD
 *                closed, answering our declare                        GONE, nothing was made     (code says why)
 *                closed, answering anything else                      UNDOING                    (code says why)
 *                release                                              RELEASING
 *   HELD         basic.cancel: somebody deleted the queue             GONE, lost
 *                closed by the broker                                 UNDOING, lost
 *                release                                              RELEASING
 *   RELEASING    delete-ok                                            GONE, the channel back in the pool
 *                closed by the broker                                 UNDOING
 *   UNDOING      delete-ok on another channel, or 404, 405 there      GONE
 *   any          the link goes down                                   GONE, lost if it was HELD
 *
 * A message of type AL_TYPE_REVOKE asks for the claim back. It is noted, and changes no state: nobody takes a claim away
 * from its holder. Messages of other types, and those without one, are probes and mean nothing.
 *
 * Once it is GONE its doorbell is told, whichever way it went: only now does waking somebody lead to a free slot.
 *
 * Replies are matched by method and never by order: consume-ok comes last. Until a claim is GONE its name stays in the
 * connection's table: RabbitMQ lets a connection declare its own exclusive queue again, so nothing but this table keeps
 * two callers on one connection apart, and a queue still going away must not be met by a new claim. */
#ifndef AL_CORE_CLAIM_H
#define AL_CORE_CLAIM_H

#include "amqplocks.h"
#include "core/bell.h"
#include "core/channel.h"
#include "core/wait.h"

typedef enum al_claim_state {
  AL_CLAIM_CLAIMING,
  AL_CLAIM_HELD,
  AL_CLAIM_RELEASING,
  AL_CLAIM_UNDOING,
  AL_CLAIM_GONE
} al_claim_state;

#define AL_LOOKS_MAX 2

typedef struct al_claim al_claim;
struct al_claim {
  al_session *session;
  al_claim *next;      /* in the session's list */
  al_claim *next_name; /* in the bucket of the holder's table of names, while not GONE */
  _Atomic al_claim_state state;
  al_channel *channel;
  char queue[AL_NAME_SIZE];
  char ticket[AL_TICKET_SIZE]; /* the consumer's tag too: never used twice */
  double acquired_at;          /* seconds since the epoch */

  bool is_declared, is_consumed, is_pulsed;
  bool
      is_denied; /* UNDOING, and the broker denies the deletion: it is waited for until it is seen to be gone */
  char denial[160];
  int64_t undo_at; /* when to ask again */
  al_wait undo_wait;
  int looks, looks_ok;
  char look[AL_LOOKS_MAX][AL_NAME_SIZE];

  al_code
      code; /* why it is not held. CONTENDED: the queue was another's (405). REMOVED: a look found nothing */
  char why[160];
  bool was_let_go;         /* by its owner, or with its session */
  _Atomic bool is_revoked; /* an administrator asked for it back; it stays so */

  int users;            /* who still look at it; it is freed when GONE and unused */
  int other_deletes;    /* deletes of other queues on our channel that are still to be answered */
  int asked, confirmed; /* al_claim_confirm: questions sent, and answered with yes */

  al_bell *bell; /* leaves when the claim is GONE: its token goes back, or it is rung; NULL */

  /* Methods and the closing of a held claim's channel that are not the claim's own business. NULL: nobody's. */
  void (*on)(al_op *op, const al_event *event);
  al_op *on_op;
};

/* Begins a claim on `queue` for `op`, which watches it from now on and is its first user; `looks` names of queues that
 * must exist. The holder must be open, and `queue` not in its table of names. NULL: no channel or no memory, and the
 * operation has failed. */
al_claim *al_claim_begin(al_op *op, const char *queue, int looks, char look[][AL_NAME_SIZE]);

/* Lets it go, whatever its state; idempotent. */
void al_claim_release(al_claim *claim);

/* Asks the broker on the claim's own channel whether the queue is still there and ours: answered when `confirmed` has
 * reached the number returned, or the claim is no longer HELD. */
int al_claim_confirm(al_claim *claim);

/* Deletes another queue on the held claim's own channel; the answer goes to `on`. */
void al_claim_delete_other(al_claim *claim, const char *queue);

/* Takes over a caller at the doorbell, who is told when the claim is gone; see al_bell_stay(). */
void al_claim_ring(al_claim *claim, al_bell *bell, bool was_quick);

void al_claim_use(al_claim *claim);
void al_claim_leave(
    al_claim *claim); /* NULL is fine; whoever held it released it before, or goes on without */

/* What this connection holds or may hold by this name; NULL if nothing. */
al_claim *al_claim_find(al_session *session, const char *queue);

/* For the session: the holder went down, and with it what had no channel to hear of it. */
void al_claims_down(al_session *session);

/* For the session: frees what nobody needs any more, and tries again what lacked a channel. */
void al_claims_sweep(al_session *session);

#endif
