/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A drain goal: what an administrator's action collects from a queue, and when that is enough or the wait is over. */
#ifndef AL_CORE_TOKENS_DRAIN_GOAL_H
#define AL_CORE_TOKENS_DRAIN_GOAL_H

#include "core/tokens/drain.h"

typedef enum al_drain_goal_kind {
  AL_DRAIN_GOAL_NUMBER, /* so many, neither more nor fewer */
  AL_DRAIN_GOAL_ALL, /* so many or more, as long as there are any; or all there are, if nobody else consumes */
  AL_DRAIN_GOAL_WHOLE,  /* so many, what is one too many thrown away; or all there are, if that is certain */
  AL_DRAIN_GOAL_CERTAIN /* all there are, if that is certain */
} al_drain_goal_kind;

typedef struct al_drain_goal {
  al_drain drain;
  al_drain_goal_kind goal;
  int number;
  int64_t give_up_at;
} al_drain_goal;

/* Begins to collect for `op`, and gives up when it has waited so long for others to give back what they have. The
 * holder must be open. `number` 0: it is not known (not for AL_DRAIN_GOAL_NUMBER). */
void al_drain_goal_begin(al_drain_goal *drain_goal, al_op *op, const char *queue, al_drain_goal_kind goal,
                         int number, int64_t wait);

/* With so many in hand, begins to collect as many from another queue as well: see al_drain_go_on. */
void al_drain_goal_go_on(al_drain_goal *drain_goal, const char *queue, int64_t wait);

/* To be looked at in every step of `op`. Enough: the drain has what was wanted, until somebody tells it what to do
 * with that. */
typedef enum al_drain_goal_state {
  AL_DRAIN_GOAL_GOES_ON,
  AL_DRAIN_GOAL_ENOUGH,
  AL_DRAIN_GOAL_TOO_LITTLE
} al_drain_goal_state;
al_drain_goal_state al_drain_goal_poll(al_drain_goal *drain_goal);

/* Words for too little, about the permits of semaphore `name`. */
void al_drain_goal_explain(const al_drain_goal *drain_goal, const char *name, char out[AL_MESSAGE_SIZE]);

#endif
