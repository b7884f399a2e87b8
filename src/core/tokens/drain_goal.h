/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A harvest: what an administrator's action collects from a queue, and when that is enough or the wait is over. */
#ifndef AL_CORE_TOKENS_DRAIN_GOAL_H
#define AL_CORE_TOKENS_DRAIN_GOAL_H

#include "core/tokens/drain.h"

typedef enum al_harvest_goal {
  AL_HARVEST_NUMBER, /* so many, neither more nor fewer */
  AL_HARVEST_ALL,   /* so many or more, as long as there are any; or all there are, if nobody else consumes */
  AL_HARVEST_WHOLE, /* so many, what is one too many thrown away; or all there are, if that is certain */
  AL_HARVEST_CERTAIN /* all there are, if that is certain */
} al_harvest_goal;

typedef struct al_harvest {
  al_collector collector;
  al_harvest_goal goal;
  int number;
  int64_t give_up_at;
} al_harvest;

/* Begins to collect for `op`, and gives up when it has waited so long for others to give back what they have. The
 * holder must be open. `number` 0: it is not known (not for AL_HARVEST_NUMBER). */
void al_harvest_begin(al_harvest *harvest, al_op *op, const char *queue, al_harvest_goal goal, int number,
                      int64_t wait);

/* With so many in hand, begins to collect as many from another queue as well: see al_collector_go_on. */
void al_harvest_go_on(al_harvest *harvest, const char *queue, int64_t wait);

/* To be looked at in every step of `op`. Enough: the collector has what was wanted, until somebody tells it what to do
 * with that. */
typedef enum al_harvest_state {
  AL_HARVEST_GOES_ON,
  AL_HARVEST_ENOUGH,
  AL_HARVEST_TOO_LITTLE
} al_harvest_state;
al_harvest_state al_harvest_look(al_harvest *harvest);

/* Words for too little, about the permits of semaphore `name`. */
void al_harvest_explain(const al_harvest *harvest, const char *name, char out[AL_MESSAGE_SIZE]);

#endif
