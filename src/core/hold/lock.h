/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A lock: a claim that succeeded, and what is told about it. It belongs to its session, and to one owner outside.
 * Verifying and releasing are operations on it. */
#ifndef AL_CORE_HOLD_LOCK_H
#define AL_CORE_HOLD_LOCK_H

#include "core/session/claim.h"
#include "core/session/op.h"

struct al_lock {
  int refs; /* the owner outside, and operations under way */
  al_session *session;
  _Atomic(al_claim *) claim;
  al_claim *former; /* the claim before al_lock_exchange(): another caller may still read it; NULL */
  _Atomic al_lock_kind kind;
  char name[AL_NAME_SIZE];
  int slot;
  int64_t fence;               /* its fencing token; 0: it has none */
  char permit[AL_TICKET_SIZE]; /* the id of the permit that the token counts the holders of; "" */
  al_probing probing;
  bool released; /* the owner released it: from then on it answers nothing else */

  /* Of a mutex that may be retained (holder_queue.h). */
  int64_t retain; /* until so long after its claim was begun; 0: not at all */
  bool is_past;   /* its claim is retained, or serves a later lock: it is nothing to this lock any more */
  char ticket[AL_TICKET_SIZE]; /* of a lock whose claim served another before; "": the claim's */
  double acquired_at;
};

/* Uses a claim that is HELD. `slot`: 0 if it is not a slot. NULL: no memory. */
al_lock *al_lock_new(al_claim *claim, al_lock_kind kind, const char *name, int slot, al_probing probing);

/* The claim was retained: the lock gets a ticket and a time of its own. */
void al_lock_renew(al_lock *lock);

/* From now on another claim holds it, and it is of another kind. The claim before is only kept as `former`. */
void al_lock_exchange(al_lock *lock, al_claim *claim, al_lock_kind kind);

al_lock *al_lock_ref(al_lock *lock); /* returns it */
void al_lock_unref(al_lock *lock);

/* Releases it, for a caller that fails and has not told of it: as al_lock_release(), but a permit is confirmed, too. */
al_op *al_lock_give_back(al_lock *lock);

/* Releases it. No operation reports the result. */
void al_lock_let_go(al_lock *lock);

/* The operation, which acquires, is about to finish: counts its locks (al_session_stats). */
void al_locks_count(al_op *op);

/* Drops it for an operation that is over when the broker has it back: al_claim_undo(). NULL is fine. */
void al_lock_undo(al_lock *lock, al_op *op);

/* The same for the locks of the operation that nobody has fetched. */
void al_locks_drop(al_op *op);

/* True if it is held. Otherwise the operation fails and tells why it is not. */
bool al_lock_is_still_held(al_op *op, const al_lock *lock);

/* True if it was lost before its owner released it. al_lock_held() does not tell that after the release.
 * al_lock_reason() says why. */
bool al_lock_was_lost(const al_lock *lock);

#endif
