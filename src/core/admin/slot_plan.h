/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The plan of an administrator's action, computed from the slots that exist: the number of slots at the end (an
 * absolute number), and the slots to delete. Nothing here sends or waits. */
#ifndef AL_CORE_ADMIN_SLOT_PLAN_H
#define AL_CORE_ADMIN_SLOT_PLAN_H

#include "amqplocks.h"
#include "core/admin/action.h"
#include "core/admin/slot_count.h"

typedef struct al_slot_plan {
  al_action action;
  int amount;     /* the caller's argument: the number of slots, or how many to add or remove */
  int overshoot;  /* also delete slots so far behind the end of the row */
  bool ascending; /* the order of the deletes; otherwise descending */

  int target;   /* the number of slots at the end; -1 until it is computed */
  int *deletes; /* slots, in the order of their deletion */
  int delete_count;
} al_slot_plan;

/* Computes `target` and `deletes`, and marks the slots to delete as absent in `row`. Any code but AL_OK: the
 * action must not be taken, and `words` tell why. */
al_code al_slot_plan_plan(al_slot_plan *change, al_slot_count *row, char words[AL_MESSAGE_SIZE]);
void al_slot_plan_free(al_slot_plan *change);

#endif
