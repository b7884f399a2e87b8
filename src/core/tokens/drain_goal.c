/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/drain_goal.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/session/session.h"

void al_drain_goal_begin(al_drain_goal *drain_goal, al_op *op, const char *queue, al_drain_goal_kind goal,
                         int number, int64_t wait) {
  drain_goal->goal = goal;
  drain_goal->number = number;
  drain_goal->give_up_at = al_deadline_after(op->session->now, wait);
  if (goal == AL_DRAIN_GOAL_WHOLE)
    al_drain_sift(&drain_goal->drain, op, queue, number);
  else
    al_drain_begin(&drain_goal->drain, op, queue, goal == AL_DRAIN_GOAL_NUMBER ? number : AL_DRAIN_MOST);
}

void al_drain_goal_go_on(al_drain_goal *drain_goal, const char *queue, int64_t wait) {
  drain_goal->give_up_at = al_deadline_after(drain_goal->drain.op->session->now, wait);
  al_drain_go_on(&drain_goal->drain, queue);
}

/* Called when the result of a check is here. */
static bool has_enough(const al_drain_goal *drain_goal) {
  const al_drain *drain = &drain_goal->drain;
  bool is_bare = al_drain_is_bare(drain);
  switch (drain_goal->goal) {
    case AL_DRAIN_GOAL_ALL:
      return al_drain_is_sole(drain) ||
             (is_bare && drain_goal->number > 0 && drain->count >= drain_goal->number);
    case AL_DRAIN_GOAL_WHOLE: /* a full drain cannot see whether there is a surplus message */
      return al_drain_is_alone(drain) ||
             (drain->count == drain_goal->number && (is_bare || drain->count == drain->room));
    case AL_DRAIN_GOAL_CERTAIN:
      return al_drain_is_alone(drain);
    default:
      return false;
  }
}

/* True if ready messages are still being delivered to the drain, if the next checks can make certain that none is left,
 * or if the queue is silent: not even the drain is counted. */
static bool is_settling(const al_drain_goal *drain_goal) {
  const al_drain *drain = &drain_goal->drain;
  bool is_coming = drain->ready > 0 && drain->count < drain->room;
  bool may_be_certain = drain_goal->goal == AL_DRAIN_GOAL_WHOLE || drain_goal->goal == AL_DRAIN_GOAL_CERTAIN;
  return is_coming || drain->consumers == 0 || (may_be_certain && al_drain_is_sole(drain));
}

al_drain_goal_state al_drain_goal_poll(al_drain_goal *drain_goal) {
  al_drain *drain = &drain_goal->drain;
  int64_t now = drain->op->session->now;
  if (drain->op->done) return AL_DRAIN_GOAL_GOES_ON;
  if (drain_goal->goal == AL_DRAIN_GOAL_NUMBER && al_drain_is_full(drain)) return AL_DRAIN_GOAL_ENOUGH;
  if (!al_drain_poll_look(drain)) return AL_DRAIN_GOAL_GOES_ON;
  if (has_enough(drain_goal)) return AL_DRAIN_GOAL_ENOUGH;
  if (now >= drain_goal->give_up_at && !is_settling(drain_goal)) return AL_DRAIN_GOAL_TOO_LITTLE;
  al_drain_rest(drain, drain_goal->give_up_at > now ? drain_goal->give_up_at : AL_NEVER);
  return AL_DRAIN_GOAL_GOES_ON;
}

void al_drain_goal_explain(const al_drain_goal *drain_goal, const char *name, char out[AL_MESSAGE_SIZE]) {
  const al_drain *drain = &drain_goal->drain;
  int others = drain->consumers - 1, count = drain->count, number = drain_goal->number;
  if (drain_goal->goal == AL_DRAIN_GOAL_WHOLE)
    snprintf(out, AL_MESSAGE_SIZE,
             "%d of %d permits of \"%s\" are held or lost: which of the two is known when they are back, or "
             "when the %d "
             "other consumers are gone",
             number - count, number, name, others);
  else if (number == 0)
    snprintf(out, AL_MESSAGE_SIZE, "queue \"%s\" has %d other consumers, which may hold permits",
             drain->queue, others);
  else
    snprintf(out, AL_MESSAGE_SIZE,
             "only %d of %d permits could be taken from \"%s\", the others are held; nothing was removed",
             count, number, name);
}
