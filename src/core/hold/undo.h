/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What is left of a claim whose channel the broker has closed: its queue, perhaps. A refused consume, for one, leaves it
 * standing. It is deleted from another channel; where that is denied it is looked for until it is gone.
 *
 *   the answer                           the claim
 *   ---------------------------------    ---------------------------------------------------------
 *   delete-ok                            GONE
 *   404: it is going away, or gone       GONE
 *   405: it is somebody else's by now    GONE
 *   closed by any other answer           UNDOING, denied: it is not deleted any more, but looked for
 *   declare-ok: it is still there        UNDOING: it is looked for again later
 *   closed for reasons of its own        UNDOING: it is deleted again later
 *   the link goes down                   GONE
 *
 * Where no channel is left the question is asked when there is one again. */
#ifndef AL_CORE_HOLD_UNDO_H
#define AL_CORE_HOLD_UNDO_H

#include "core/base/backoff.h"
#include "core/session/claim.h"
#include "core/wire/channel.h"

typedef struct al_undo {
  al_claim *claim;
  al_channel *channel; /* NULL: nothing is being asked */
  int64_t at;          /* when to ask again; 0: as soon as there is a channel */
  al_backoff wait;
} al_undo;

/* The claim is UNDOING from now on, and has no channel any more. */
void al_undo_begin(al_undo *undo, al_claim *claim);

/* For the claim, which need not be UNDOING. Asks again if it is time; when that will be, AL_NEVER if nothing is to be asked,
 * or an answer or a channel has to come first. */
int64_t al_undo_sweep(al_undo *undo);

/* The claim's link went down. */
void al_undo_down(al_undo *undo);

#endif
