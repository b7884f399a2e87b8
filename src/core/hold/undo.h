/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The undoing of a claim whose channel the broker has closed. The claim's queue may be left: after a refused consume,
 * for example, it still exists. It is deleted from another channel. If the broker denies that, the queue is checked
 * until it is gone.
 *
 *   the answer                           the claim
 *   ---------------------------------    ---------------------------------------------------------
 *   delete-ok                            GONE
 *   404: it is going away, or gone       GONE
 *   405: by now it is another client's   GONE
 *   closed by any other answer           UNDOING, denied: from now on it is checked, not deleted
 *   declare-ok: it still exists          UNDOING: it is checked again later
 *   closed for reasons of its own        UNDOING: it is deleted again later
 *   the link goes down                   GONE
 *
 * If no channel is free, the request is written when one is. */
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

/* The claim is UNDOING from now on. It has no channel any more. */
void al_undo_begin(al_undo *undo, al_claim *claim);

/* For the claim, which need not be UNDOING. Asks again if it is time. Returns when to call it next; AL_NEVER if there
 * is nothing to ask, or if an answer or a channel has to come first. */
int64_t al_undo_sweep(al_undo *undo);

/* The claim's link went down. */
void al_undo_down(al_undo *undo);

#endif
