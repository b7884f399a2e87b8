/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What an administrator's action comes to, given the slots that exist: an absolute number of slots to end with, and the
 * slots to delete on the way. Nothing here talks to anybody. */
#ifndef AL_CORE_ADMIN_SLOT_PLAN_H
#define AL_CORE_ADMIN_SLOT_PLAN_H

#include "amqplocks.h"
#include "core/admin/action.h"
#include "core/admin/slot_count.h"

typedef struct al_slot_plan {
  al_action action;
  int amount; /* what the caller gave: slots in all, or slots more or fewer */
  int overshoot;
  bool ascending;

  int target;   /* slots when all is done; -1 until that is computed */
  int *deletes; /* slots, in their order */
  int delete_count;
} al_slot_plan;

/* Computes the target and what to delete, and strikes the latter from the count. Anything but AL_OK: the action must not
 * be taken, and `words` say why. */
al_code al_slot_plan_plan(al_slot_plan *change, al_slot_count *row, char words[AL_MESSAGE_SIZE]);
void al_slot_plan_free(al_slot_plan *change);

#endif
