/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A drain goal: how many messages an administrator's action takes from a queue by a drain (drain.h), and when that
 * is enough or the wait is over. */
#ifndef AL_CORE_TOKENS_DRAIN_GOAL_H
#define AL_CORE_TOKENS_DRAIN_GOAL_H

#include "core/tokens/drain.h"

typedef enum al_drain_goal_kind {
  AL_DRAIN_GOAL_NUMBER, /* exactly `number` */
  /* `number` or more, until none lies ready; or all messages, if there is no other consumer */
  AL_DRAIN_GOAL_ALL,
  /* `number`, and surplus messages are removed; or all messages, if it is certain that the others are lost */
  AL_DRAIN_GOAL_WHOLE,
  AL_DRAIN_GOAL_CERTAIN /* all messages, if it is certain that there are no others */
} al_drain_goal_kind;

typedef struct al_drain_goal {
  al_drain drain;
  al_drain_goal_kind goal;
  int number;
  int64_t give_up_at;
} al_drain_goal;

/* Begins to take messages for `op`. Gives up after `wait`, if other clients have not given back their messages by
 * then. The holder must be open. `number` 0: not known (not for AL_DRAIN_GOAL_NUMBER). */
void al_drain_goal_begin(al_drain_goal *drain_goal, al_op *op, const char *queue, al_drain_goal_kind goal,
                         int number, int64_t wait);

/* After ENOUGH: begins to take as many messages from another queue as well; see al_drain_go_on(). */
void al_drain_goal_go_on(al_drain_goal *drain_goal, const char *queue, int64_t wait);

/* ENOUGH: the drain has the messages, and keeps them until the caller acknowledges or returns them. TOO_LITTLE:
 * the wait is over before the goal is reached. */
typedef enum al_drain_goal_state {
  AL_DRAIN_GOAL_GOES_ON,
  AL_DRAIN_GOAL_ENOUGH,
  AL_DRAIN_GOAL_TOO_LITTLE
} al_drain_goal_state;
al_drain_goal_state al_drain_goal_poll(al_drain_goal *drain_goal);

/* Writes the message for TOO_LITTLE, about the permits of semaphore `name`. */
void al_drain_goal_explain(const al_drain_goal *drain_goal, const char *name, char out[AL_MESSAGE_SIZE]);

#endif
