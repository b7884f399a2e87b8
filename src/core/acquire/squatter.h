/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A squatter: a queue that has the name of a holder's queue or of a mutex, but is not exclusive. It is nobody's lock,
 * and keeps the lock of that name taken for ever. Only a passive declare tells a squatter from a holder's queue. The
 * first true holder among the suspects answers with 405, which costs a channel, and a line in the broker's log. So
 * this is checked seldom. */
#ifndef AL_CORE_ACQUIRE_SQUATTER_H
#define AL_CORE_ACQUIRE_SQUATTER_H

#include "core/session/op.h"
#include "core/session/probe.h"
#include "core/wire/channel.h"

#define AL_SUSPECTS_MOST 16

typedef struct al_squatter {
  al_op *op;
  al_channel *channel; /* NULL: nothing is being asked */
  size_t count, found; /* suspects; how many of them, in order, are squatters */
  uint64_t gone;       /* al_exclusive_gone() when this was asked */
  bool is_ours;        /* one of them is, or may have been meanwhile, this session's own */
  char first[AL_NAME_SIZE];
} al_squatter;

/* Asks about `count` suspects. False: there are none, or no channel is free. */
bool al_squatter_begin(al_squatter *squatter, al_op *op, size_t count, al_probe_name *name,
                       const void *context);

/* Poll; see op.h. True when nothing is being asked any more, and at least one suspect is a true lock. If all are
 * squatters, or the link is lost, the operation has failed. */
bool al_squatter_poll(const al_squatter *squatter);
void al_squatter_cancel(al_squatter *squatter);

#endif
