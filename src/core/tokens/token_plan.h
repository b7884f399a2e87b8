/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The plan of an administrator's action on a token semaphore, computed from the state of its two queues
 * (token_queues.h): the permits (messages that clients consume) and the marks (one message for each permit that
 * should exist). Nothing here sends or waits. */
#ifndef AL_CORE_TOKENS_TOKEN_PLAN_H
#define AL_CORE_TOKENS_TOKEN_PLAN_H

#include "core/admin/action.h"
#include "core/tokens/token_queues.h"

typedef enum al_token_way {
  AL_TOKEN_LEAVES, /* nothing to do: the count is right already */
  AL_TOKEN_MAKES,  /* creates the semaphore; marks of an administrator that died may be there */
  AL_TOKEN_ADDS,
  AL_TOKEN_TAKES,   /* removes some of the permits */
  AL_TOKEN_EMPTIES, /* drains all permits, then deletes the queues */
  AL_TOKEN_DELETES, /* deletes the queues at once, also if permits are held */
  AL_TOKEN_MENDS,   /* makes the permits as many as the marks */
  AL_TOKEN_ADOPTS   /* takes over permits that have no marks; deletes their queue if the target is 0 */
} al_token_way;

typedef struct al_token_plan {
  al_action action;
  int amount; /* the caller's argument: the number of permits, or how many to add or remove */
  bool waits; /* for holders to release, also before a destroy */

  al_token_way way;
  int count;   /* the marks that exist */
  int target;  /* the marks at the end; -1 until it is computed */
  int takes;   /* so many permits are taken, and then as many marks */
  int marks;   /* to be published */
  int permits; /* to be published */
} al_token_plan;

/* Any code but AL_OK: the action must not be taken, and `words` tell why. */
al_code al_token_plan_make(al_token_plan *plan, const al_token_queues *queues, const char *name,
                           char words[AL_MESSAGE_SIZE]);

#endif
