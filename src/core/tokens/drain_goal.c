/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/drain_goal.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/session/session.h"

void al_harvest_begin(al_harvest *harvest, al_op *op, const char *queue, al_harvest_goal goal, int number,
                      int64_t wait) {
  harvest->goal = goal;
  harvest->number = number;
  harvest->give_up_at = al_wait_until(op->session->now, wait);
  if (goal == AL_HARVEST_WHOLE)
    al_collector_sift(&harvest->collector, op, queue, number);
  else
    al_collector_begin(&harvest->collector, op, queue,
                       goal == AL_HARVEST_NUMBER ? number : AL_COLLECTOR_MOST);
}

void al_harvest_go_on(al_harvest *harvest, const char *queue, int64_t wait) {
  harvest->give_up_at = al_wait_until(harvest->collector.op->session->now, wait);
  al_collector_go_on(&harvest->collector, queue);
}

/* At a look. */
static bool has_enough(const al_harvest *harvest) {
  const al_collector *collector = &harvest->collector;
  bool is_bare = collector->ready == 0;
  switch (harvest->goal) {
    case AL_HARVEST_ALL:
      return al_collector_is_sole(collector) ||
             (is_bare && harvest->number > 0 && collector->count >= harvest->number);
    case AL_HARVEST_WHOLE: /* without room for one too many there is none to be seen */
      return al_collector_is_alone(collector) ||
             (collector->count == harvest->number && (is_bare || collector->count == collector->room));
    case AL_HARVEST_CERTAIN:
      return al_collector_is_alone(collector);
    default:
      return false;
  }
}

/* At a look: more comes without anybody's help, or it will soon be certain that nothing does. */
static bool is_settling(const al_harvest *harvest) {
  const al_collector *collector = &harvest->collector;
  bool is_coming = collector->ready > 0 && collector->count < collector->room;
  bool may_be_certain = harvest->goal == AL_HARVEST_WHOLE || harvest->goal == AL_HARVEST_CERTAIN;
  return is_coming || (may_be_certain && al_collector_is_sole(collector));
}

al_harvest_state al_harvest_look(al_harvest *harvest) {
  al_collector *collector = &harvest->collector;
  int64_t now = collector->op->session->now;
  if (collector->op->done) return AL_HARVEST_GOES_ON;
  if (harvest->goal == AL_HARVEST_NUMBER && al_collector_is_full(collector)) return AL_HARVEST_ENOUGH;
  if (!al_collector_looked(collector)) return AL_HARVEST_GOES_ON;
  if (has_enough(harvest)) return AL_HARVEST_ENOUGH;
  if (now >= harvest->give_up_at && !is_settling(harvest)) return AL_HARVEST_TOO_LITTLE;
  al_collector_rest(collector, harvest->give_up_at > now ? harvest->give_up_at : AL_NEVER);
  return AL_HARVEST_GOES_ON;
}

void al_harvest_explain(const al_harvest *harvest, const char *name, char out[AL_MESSAGE_SIZE]) {
  const al_collector *collector = &harvest->collector;
  int others = collector->consumers - 1, count = collector->count, number = harvest->number;
  if (harvest->goal == AL_HARVEST_WHOLE)
    snprintf(
        out, AL_MESSAGE_SIZE,
        "%d of %d permits of \"%s\" are held or lost: which of it shows when they are back, or when the %d "
        "other consumers are gone",
        number - count, number, name, others);
  else if (number == 0)
    snprintf(out, AL_MESSAGE_SIZE, "queue \"%s\" has %d other consumers, who may hold permits",
             collector->queue, others);
  else
    snprintf(out, AL_MESSAGE_SIZE,
             "only %d of %d permits could be taken from \"%s\", the others are held; nothing was removed",
             count, number, name);
}
