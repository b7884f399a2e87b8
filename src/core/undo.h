/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What is left of a claim whose channel the broker has closed: its queue, perhaps. A refused consume, for one, leaves it
 * standing. It is deleted from another channel; where that is denied it is looked for until it is gone.
 *
 *   the answer                           the claim
 *   ---------------------------------    -------------------------------------------------
 *   delete-ok, 404                       GONE
 *   405: it is somebody else's by now    GONE
 *   declare-ok: it is still there        UNDOING, and it is looked for again later
 *   the channel is closed otherwise      UNDOING, and asked again later
 *   the link goes down                   GONE */
#ifndef AL_CORE_UNDO_H
#define AL_CORE_UNDO_H

#include "core/channel.h"
#include "core/claim.h"
#include "core/wait.h"

typedef struct al_undo {
  al_claim *claim;
  al_channel *channel; /* NULL: nothing is being asked */
  int64_t at;          /* when to ask again */
  al_wait wait;
} al_undo;

/* The claim is UNDOING from now on, and has no channel any more. */
void al_undo_begin(al_undo *undo, al_claim *claim);

/* For the claim, while it is UNDOING: asks again if it is time; its link went down. */
void al_undo_sweep(al_undo *undo);
void al_undo_down(al_undo *undo);

#endif
