/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_plan.h"

#include <stdio.h>

/* These actions compute with the count, so the count must be right. */
static bool alters(const al_token_plan *plan) {
  return plan->action == AL_ADD || plan->action == AL_REMOVE || plan->action == AL_RESIZE;
}

static al_code judge_what_is_there(const al_token_plan *plan, const al_token_queues *queues, const char *name,
                                   char words[AL_MESSAGE_SIZE]) {
  const al_inspect *permits = &queues->permits, *marks = &queues->marks;
  bool is_foreign = al_token_queues_are_foreign(queues);
  bool destroys = plan->action == AL_DESTROY;
  if (!permits->exists && !al_action_makes(plan->action) && !(destroys && marks->exists)) {
    snprintf(words, AL_MESSAGE_SIZE, "there is no token semaphore \"%s\"", name);
    return AL_NOT_FOUND;
  }
  if (is_foreign && plan->action != AL_RESIZE && !destroys) {
    snprintf(words, AL_MESSAGE_SIZE, AL_TOKEN_QUEUES_FOREIGN, permits->queue);
    return AL_CONFLICT;
  }
  if (permits->exists && !is_foreign && alters(plan) && permits->ready > plan->count) {
    snprintf(words, AL_MESSAGE_SIZE,
             "\"%s\" has %d free permits, more than the %d that it should have: repair() removes the "
             "surplus",
             name, permits->ready, plan->count);
    return AL_CONFLICT;
  }
  if (permits->exists && plan->action == AL_CREATE) {
    snprintf(words, AL_MESSAGE_SIZE, "token semaphore \"%s\" has %d permits already; resize(%d) changes that",
             name, plan->count, plan->amount);
    return AL_EXISTS;
  }
  return AL_OK;
}

static al_code judge(const al_token_plan *plan, const al_token_queues *queues, const char *name,
                     char words[AL_MESSAGE_SIZE]) {
  al_code code = judge_what_is_there(plan, queues, name, words);
  int most = plan->count > plan->target ? plan->count : plan->target;
  if (code != AL_OK || most <= AL_SLOTS_MAX || plan->action == AL_DESTROY) return code;
  snprintf(words, AL_MESSAGE_SIZE, "\"%s\" %s %d permits; the most is %d", name,
           most == plan->count ? "has" : "would have", most, AL_SLOTS_MAX);
  return AL_LIMIT;
}

static al_token_way way(const al_token_plan *plan, const al_token_queues *queues) {
  if (plan->action == AL_DESTROY)
    return plan->waits && queues->permits.exists ? AL_TOKEN_EMPTIES : AL_TOKEN_DELETES;
  if (plan->action == AL_REPAIR) return AL_TOKEN_MENDS;
  if (al_token_queues_are_foreign(queues)) return AL_TOKEN_ADOPTS;
  if (!queues->permits.exists) return plan->target > 0 ? AL_TOKEN_MAKES : AL_TOKEN_DELETES;
  if (plan->target == 0) return AL_TOKEN_EMPTIES;
  if (plan->target == plan->count) return AL_TOKEN_LEAVES;
  return plan->target > plan->count ? AL_TOKEN_ADDS : AL_TOKEN_TAKES;
}

al_code al_token_plan_make(al_token_plan *plan, const al_token_queues *queues, const char *name,
                           char words[AL_MESSAGE_SIZE]) {
  plan->count = al_token_queues_count(queues);
  plan->target = al_action_target(plan->action, plan->amount, plan->count, plan->count);
  al_code code = judge(plan, queues, name, words);
  if (code != AL_OK) return code;
  plan->way = way(plan, queues);
  int more = plan->target - plan->count;
  if (plan->way == AL_TOKEN_MAKES || plan->way == AL_TOKEN_ADDS || plan->way == AL_TOKEN_ADOPTS)
    plan->marks = plan->permits = more;
  else if (plan->way == AL_TOKEN_TAKES || plan->way == AL_TOKEN_EMPTIES)
    plan->takes = -more;
  return AL_OK;
}
