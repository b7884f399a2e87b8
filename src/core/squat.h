/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A squatter: a queue by the name of a B that is not exclusive. It keeps its slot taken for ever and is nobody's lock.
 * Only a passive declare tells it from a holder's queue, and the first true holder among the suspects answers with 405:
 * a channel, and a line in the broker's log. So the question is asked only when no slot was free. */
#ifndef AL_CORE_SQUAT_H
#define AL_CORE_SQUAT_H

#include "core/channel.h"
#include "core/op.h"

#define AL_SUSPECTS_MOST 16

typedef struct al_squat {
  al_op *op;
  al_channel *channel; /* NULL: nothing is being asked */
  int suspects[AL_SUSPECTS_MOST], count;
  int found; /* how many of them, in order, are squatters */
  char first[AL_NAME_SIZE];
} al_squat;

void al_squat_forget(al_squat *squat); /* all suspects */
void al_squat_suspect(al_squat *squat, int slot);

/* Asks about the suspects. False: there are none, or no channel is left for the question. */
bool al_squat_begin(al_squat *squat, al_op *op, const char *name);

/* To be looked at in every step: true when at least one suspect is a true lock. If all are squatters, or the link is
 * lost, the operation has failed. */
bool al_squat_cleared(const al_squat *squat);
void al_squat_cancel(al_squat *squat);

#endif
