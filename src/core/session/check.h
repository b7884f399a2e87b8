/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Asks the broker for the queue of a claim, by a passive declare on another channel than the claim's own: a refusal
 * closes the channel on which it comes. */
#ifndef AL_CORE_SESSION_CHECK_H
#define AL_CORE_SESSION_CHECK_H

#include "core/session/claim.h"
#include "core/wire/channel.h"

/* `event`: declare-ok, or CLOSED, which says why the broker refused. */
typedef void al_check_fn(al_claim *claim, const al_event *event);

typedef struct al_check {
  al_claim *claim;
  al_check_fn *answered; /* all operations that watch the claim are stepped afterwards */
  al_channel *channel;   /* NULL: no question is under way */
} al_check;

void al_check_init(al_check *check, al_claim *claim, al_check_fn *answered);

/* Asks; also while an earlier question is under way. False: no other channel is free. */
bool al_check_ask(al_check *check);

/* Nobody waits for an answer any more. */
void al_check_drop(al_check *check);

#endif
