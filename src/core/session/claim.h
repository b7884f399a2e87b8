/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A claim: something of the broker's that is asked for, ours for a while, and then certainly not ours any more. What it is
 * its kind knows: a queue of our own (exclusive.h). Locks and mutexes are claims that succeeded.
 *
 *   CLAIMING ──> HELD ──> RELEASING ──> GONE
 *       └──────────┴──────────┴──> UNDOING ──┘     each may also be GONE at once, with its link if not otherwise
 *
 * A claim outlives the operation that made it: it belongs to its session until nothing of it is left. */
#ifndef AL_CORE_SESSION_CLAIM_H
#define AL_CORE_SESSION_CLAIM_H

#include "core/session/op.h"

typedef enum al_claim_state {
  AL_CLAIM_CLAIMING,
  AL_CLAIM_HELD,
  AL_CLAIM_RELEASING,
  AL_CLAIM_UNDOING, /* it is not ours, or not to be, but something of it may be left at the broker */
  AL_CLAIM_GONE
} al_claim_state;

typedef struct al_claim_kind {
  void (*release)(al_claim *); /* from CLAIMING or HELD */
  bool (*confirm)(al_claim *); /* HELD: asks; a yes counts as one more `confirmed`. False: it cannot */
  /* Tries again what could not be done, if it is time; when next; NULL: never. */
  int64_t (*sweep)(al_claim *);
  void (*down)(al_claim *); /* the link went down; for those who have no channel to hear of it; or NULL */
  void (*gone)(al_claim *); /* it has become GONE */
  void (*free)(al_claim *);
} al_claim_kind;

struct al_claim {
  const al_claim_kind *kind;
  al_session *session;
  al_claim *next; /* in the session's list, while it is not GONE, or nobody looks at it any more */
  _Atomic al_claim_state state;
  char queue[AL_NAME_SIZE];    /* which it is, or from which it comes */
  char ticket[AL_TICKET_SIZE]; /* the consumer's tag too: never used twice */
  double acquired_at;          /* seconds since the epoch */
  bool is_pulsed, is_listed;

  al_code code; /* why it is not held. CONTENDED: another has it. REMOVED: what must exist beside it does not.
                   UNAVAILABLE: that is on a node that is down */
  char why[160];
  bool
      is_denied; /* UNDOING, and the broker denies what would undo it: it is waited for until it is seen to be gone */
  char denial[160];
  bool was_let_go;         /* by its owner, or with its session */
  _Atomic bool is_revoked; /* an administrator asked for it back; it stays so */

  int users;            /* who still look at it; it is freed when GONE and unused */
  int asked, confirmed; /* al_claim_confirm: questions sent, and answered with yes */
};

/* Lets it go, whatever its state; idempotent. */
void al_claim_release(al_claim *claim);

/* Asks the broker whether it is still there and ours: answered when `confirmed` has reached the number returned, or the
 * claim is no longer HELD. 0: there is no channel to ask on. */
int al_claim_confirm(al_claim *claim);

/* HELD: so is certain what was heard of it; see al_link_certain_until. */
bool al_claim_is_certain(const al_claim *claim);

void al_claim_use(al_claim *claim);
void al_claim_leave(
    al_claim *claim); /* NULL is fine; whoever held it released it before, or goes on without */

/* For the session: the holder went down, and with it what had no channel to hear of it. */
void al_claims_down(al_session *session);

/* For the session: frees what nobody needs any more, forgets what is GONE, and tries again what could not be done. */
void al_claims_sweep(al_session *session);

/* For the session's end, when nothing can happen any more. */
void al_claims_free(al_session *session);

/* ---- for the operation that watches a claim ----------------------------------------------------------------------- */

/* Asks the broker whether its claim is still there and ours. There may be no channel to ask on: the operation has failed. */
bool al_claim_confirm_for(al_op *op);
bool al_claim_is_confirmed_for(const al_op *op); /* by the answer to that; true also if nothing was asked */
/* True if what it has claimed, which is HELD, is certain: whoever was stopped, or is answered late, may read of what the
 * broker has given to another since. If it is not, the broker is asked, until it is certain or the session's timeout is over;
 * that nobody answers, or that there is no channel to ask on, fails the operation. */
bool al_claim_ascertain_for(al_op *op);
/* Words for the caller's timeout when it came while that was asked. */
void al_claim_doubt_text(const al_op *op, int64_t time, char out[AL_MESSAGE_SIZE]);

/* ---- for the kinds ---------------------------------------------------------------------------------------------- */

/* CLAIMING, with its first user, a fresh ticket, and in no list yet. */
void al_claim_init(al_claim *claim, const al_claim_kind *kind, al_session *session, const char *queue);
void al_claim_list(al_claim *claim);

void al_claim_enter(al_claim *claim, al_claim_state state);

/* It is ours: from now. */
void al_claim_got(al_claim *claim);

/* Why it is not ours; the first reason is the reason. */
void al_claim_blame(al_claim *claim, al_code code, const char *why);

/* The same with AL_LOST, and if it was HELD its owner wants to know. */
void al_claim_lose(al_claim *claim, const char *why);

/* Somebody asks for it back. Whoever asked was told that a holder got the request, and may not ask twice: so it counts
 * from the claim's first moment, before the last of our own answers has come. */
void al_claim_revoke(al_claim *claim);

/* Whoever watches looks for itself. Called for what the broker did, never for what a watcher did. */
void al_claim_notify(al_claim *claim);

#endif
