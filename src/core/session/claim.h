/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A claim is something at the broker that the session requests, holds for a while, and then certainly no longer has.
 * Its kind says what it is: an exclusive queue (holder_queue.h), or a permit (permit.h). A lock is a claim that
 * succeeded.
 *
 *   CLAIMING ──> HELD ──> RELEASING ──> GONE
 *       └──────────┴──────────┴──> UNDOING ──┘
 *
 * In each state a claim may also become GONE at once. It does so at the latest when its link goes down.
 *
 * A claim outlives the operation that made it: it belongs to its session until nothing of it is left at the
 * broker. */
#ifndef AL_CORE_SESSION_CLAIM_H
#define AL_CORE_SESSION_CLAIM_H

#include "core/base/moves.h"
#include "core/session/op.h"

typedef enum al_claim_state {
  AL_CLAIM_CLAIMING,
  AL_CLAIM_HELD,
  AL_CLAIM_RELEASING,
  AL_CLAIM_UNDOING, /* it is not held, or must not be, but something of it may be left at the broker */
  AL_CLAIM_GONE
} al_claim_state;

typedef struct al_claim_kind {
  const al_move *moves;        /* what al_claim_enter() allows */
  void (*release)(al_claim *); /* from CLAIMING or HELD */
  /* HELD, and its lock is released: keeps it for the next acquire of this session, until so many nanoseconds after it
   * was begun. False: it cannot, or others wait for it. NULL: claims of this kind are never kept. */
  bool (*retain)(al_claim *, int64_t nanoseconds);
  /* HELD: asks the broker whether it is still held. A positive answer adds one to `confirmed`. Returns false if it
   * cannot ask. */
  bool (*confirm)(al_claim *);
  /* Does what is due: retries what could not be undone, or proves that the claim is held. Returns when to call it
   * next. NULL: nothing is ever due. */
  int64_t (*sweep)(al_claim *);
  void (*down)(
      al_claim *); /* the link went down; for a claim that has no channel to be notified by; or NULL */
  void (*gone)(al_claim *); /* the claim has become GONE; or NULL */
  void (*free)(al_claim *);
} al_claim_kind;

struct al_claim {
  const al_claim_kind *kind;
  al_session *session;
  al_link *link;  /* the claim lives and dies with its connection */
  al_claim *next; /* in the session's list, while it is not GONE, or until it is freed */
  _Atomic al_claim_state state;
  char queue[AL_NAME_SIZE];      /* the queue that is claimed, or from which the permit comes */
  char ticket[AL_TICKET_SIZE];   /* never used twice; also the consumer's tag */
  double acquired_at;            /* seconds since the epoch */
  _Atomic int64_t certain_until; /* by a proof of its kind; AL_NEVER: it needs none beside its link's */
  _Atomic int64_t expires_at;    /* HELD: its lock is released then, whatever its owner does; AL_NEVER */
  bool is_listed;                /* it is in the session's list */

  al_code
      code; /* why it is not held. CONTENDED: another client has it. REMOVED: a queue that must exist beside it does
                   not. UNAVAILABLE: that queue is on a node that is down */
  char why[160];
  /* UNDOING, and the broker denies the request that would undo it. The session waits until it is seen to be gone. */
  bool is_denied;
  char denial[160];
  bool lingers;    /* RELEASING, for seconds, and only a close of the session waits for that */
  bool was_let_go; /* by its owner, or with its session. HELD: it is retained, and nobody holds its lock */
  bool is_counted; /* it is a lock that an acquire has got (al_session_stats) */
  _Atomic bool is_revoked; /* an administrator asked for it back; never reset */

  al_claim *seal; /* HELD: tells others how it ended (hold/seal.h); NULL */

  uint64_t owed_by; /* the number of the operation that is not over before this claim is GONE; 0 */

  int users;            /* number of references; the claim is freed when it is GONE and has none */
  int asked, confirmed; /* al_claim_confirm: questions sent, and questions answered positively */
};

/* Releases the claim, whatever its state. May be called again, without effect. */
void al_claim_release(al_claim *claim);

/* The same, for an operation that is not over before the broker has answered, or denies the undoing. */
void al_claim_undo(al_claim *claim, al_op *op);

/* Asks the broker whether the claim still exists and is ours. The question is answered when `confirmed` has reached
 * the number returned, or the claim is no longer HELD. Returns 0 if there is no channel to ask on. */
int al_claim_confirm(al_claim *claim);

/* HELD: returns true if its time is over, which is then why it is lost. */
bool al_claim_blame_time(al_claim *claim, int64_t now);
/* HELD, and its time is over: it is lost, and released. Returns when to call this again. */
int64_t al_claim_expire(al_claim *claim);

/* Until when the claim, if it is HELD, is certain to be: by its link (al_link_certain_until), by its own proof, and before
 * it expires. */
int64_t al_claim_certain_until(const al_claim *claim);

/* Adds and drops a reference. al_claim_leave() does not release the claim. It accepts NULL. */
void al_claim_use(al_claim *claim);
void al_claim_leave(al_claim *claim);

/* For the session: the holder went down, and with it each claim that has no channel to be notified by. */
void al_claims_down(al_session *session);

/* For the session: does what is due for each claim, takes those that are GONE off the list, and frees them if they are
 * unused. */
void al_claims_sweep(al_session *session);

/* The session does that at this time at the latest; 0: at its next pump. */
void al_claims_sweep_by(al_session *session, int64_t time);

/* For the session's end, when nothing can arrive any more. */
void al_claims_free(al_session *session);

/* ---- for the operation that watches a claim --------------------------------------------------------------------- */

/* Asks the broker whether the operation's claim still exists and is ours. Returns false if there is no channel to ask
 * on: the operation has failed. */
bool al_claim_confirm_for(al_op *op);
/* True if that question was answered positively, or if nothing was asked. */
bool al_claim_is_confirmed_for(const al_op *op);
/* Returns true if the operation's claim, which is HELD, is certain to be held. A process that was stopped, or that
 * gets its answer late, may read an answer about something that the broker has given to another client since. If the
 * claim is not certain, this asks the broker, until the claim is certain or the session's timeout is over. The
 * operation fails if there is no answer by then, or no channel to ask on. */
bool al_claim_ascertain_for(al_op *op);
/* The text for the caller's timeout if it came while al_claim_ascertain_for() was asking. */
void al_claim_doubt_text(const al_op *op, int64_t time, char out[AL_MESSAGE_SIZE]);

/* ---- for the kinds ---------------------------------------------------------------------------------------------- */

/* Makes a claim on this link of the session. It is CLAIMING, with one reference and a new ticket, and in no list yet. */
void al_claim_init(al_claim *claim, const al_claim_kind *kind, al_session *session, al_link *link,
                   const char *queue);
void al_claim_list(al_claim *claim);

void al_claim_enter(al_claim *claim, al_claim_state state);

/* The claim is UNDOING, and the broker denies the request that would undo it. */
void al_claim_deny(al_claim *claim, const char *why);

/* The claim is HELD from now on. */
void al_claim_got(al_claim *claim);

/* Sets the reason why the claim is not held. Only the first reason is kept. */
void al_claim_blame(al_claim *claim, al_code code, const char *why);

/* The same with AL_LOST. If the claim was HELD, its owner is notified. */
void al_claim_lose(al_claim *claim, const char *why);

/* An administrator asks for the claim back. The administrator was told that a holder has received the request, and
 * may not ask again. So the request also counts while the claim is CLAIMING, before the last answer of the broker has
 * come. */
void al_claim_revoke(al_claim *claim);

/* Calls the step of each operation that watches the claim. Call it for a change that the broker made, never for one
 * that a watching operation made itself. */
void al_claim_notify(al_claim *claim);

#endif
