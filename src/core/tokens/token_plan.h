/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What an administrator's action on a token semaphore comes to, given what its queues says. Nothing here talks to
 * anybody. */
#ifndef AL_CORE_TOKENS_TOKEN_PLAN_H
#define AL_CORE_TOKENS_TOKEN_PLAN_H

#include "core/admin/action.h"
#include "core/tokens/token_queues.h"

typedef enum al_token_way {
  AL_TOKEN_LEAVES, /* it is as it should be */
  AL_TOKEN_MAKES,  /* there is none, but maybe marks that another administrator left */
  AL_TOKEN_ADDS,
  AL_TOKEN_TAKES,   /* some of the permits */
  AL_TOKEN_EMPTIES, /* takes all of them, and then the queues */
  AL_TOKEN_DELETES, /* the queues, whoever holds */
  AL_TOKEN_MENDS,
  AL_TOKEN_ADOPTS /* what other software has made */
} al_token_way;

typedef struct al_token_plan {
  al_action action;
  int amount; /* what the caller gave: permits in all, or permits more or fewer */
  bool waits; /* for holders, also when destroying */

  al_token_way way;
  int count;   /* marks there are */
  int target;  /* marks when all is done; -1 until that is known */
  int takes;   /* permits, and then as many marks */
  int marks;   /* to be published */
  int permits; /* to be published */
} al_token_plan;

/* Anything but AL_OK: the action must not be taken, and `words` say why. */
al_code al_token_plan_make(al_token_plan *plan, const al_token_queues *queues, const char *name,
                           char words[AL_MESSAGE_SIZE]);

#endif
