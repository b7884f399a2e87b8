/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A squatter: a queue by the name of a holder's queue or a mutex that is not exclusive. It keeps what it is named for
 * taken for ever, and is nobody's lock. Only a passive declare tells it from a holder's queue, and the first true holder
 * among the suspects answers with 405: a channel, and a line in the broker's log. So the question is asked seldom. */
#ifndef AL_CORE_ACQUIRE_SQUATTER_H
#define AL_CORE_ACQUIRE_SQUATTER_H

#include "core/session/op.h"
#include "core/session/probe.h"
#include "core/wire/channel.h"

#define AL_SUSPECTS_MOST 16

typedef struct al_squatter {
  al_op *op;
  al_channel *channel; /* NULL: nothing is being asked */
  size_t count, found; /* suspects, and how many of them, in order, are squatters */
  bool is_ours;        /* one of them is, or was meanwhile, this session's own */
  char first[AL_NAME_SIZE];
} al_squatter;

/* Asks about `count` suspects. False: there are none, or no channel is left for the question. */
bool al_squatter_begin(al_squatter *squatter, al_op *op, size_t count, al_probe_name *name,
                       const void *context);

/* To be looked at in every step: true when nothing is being asked any more, and at least one suspect is a true lock. If
 * all are squatters, or the link is lost, the operation has failed. */
bool al_squatter_poll(const al_squatter *squatter);
void al_squatter_cancel(al_squatter *squatter);

#endif
