/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A lock held: a claim that succeeded, and what is said about it. It belongs to its session, and to one owner outside.
 * Verifying and releasing are operations on it. */
#ifndef AL_CORE_LOCK_H
#define AL_CORE_LOCK_H

#include "core/claim.h"
#include "core/op.h"

struct al_lock {
  int refs; /* the owner outside, and operations under way */
  al_session *session;
  al_claim *claim;
  char name[AL_NAME_SIZE];
  int slot;
  al_probing probing;
  bool released; /* the owner let it go: from then on nothing else is said about it */
};

/* Takes over a claim that is HELD. NULL: no memory. */
al_lock *al_lock_new(al_session *session, al_claim *claim, const char *name, int slot, al_probing probing);

#endif
