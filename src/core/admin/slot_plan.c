/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/slot_plan.h"

#include <stdio.h>
#include <stdlib.h>

/* The lowest slot that exists behind the row and behind the slots that `overshoot` deletes; 0 if there is none. */
static int stray(const al_slot_plan *change, const al_slot_count *row) {
  for (int slot = row->count + 1 + change->overshoot; slot <= row->highest; slot++)
    if (al_slot_count_exists(row, slot)) return slot;
  return 0;
}

static int target(const al_slot_plan *change, const al_slot_count *row) {
  return al_action_target(change->action, change->amount, row->count, row->highest);
}

/* These actions repair a row with gaps. The other actions fail if there is a gap. */
static bool mends(const al_slot_plan *change) {
  return change->action == AL_RESIZE || change->action == AL_DESTROY || change->action == AL_REPAIR;
}

static al_code judge(const al_slot_plan *change, const al_slot_count *row, char words[AL_MESSAGE_SIZE]) {
  const char *name = row->name;
  if (row->highest == 0 && !al_action_makes(change->action)) {
    snprintf(words, AL_MESSAGE_SIZE, "there is no semaphore \"%s\"", name);
    return AL_NOT_FOUND;
  }
  if (!mends(change) && stray(change, row)) {
    snprintf(words, AL_MESSAGE_SIZE, AL_SLOT_COUNT_GAP, name, stray(change, row), name, row->count + 1);
    return AL_CONFLICT;
  }
  if (change->action == AL_CREATE && row->count > 0) {
    snprintf(words, AL_MESSAGE_SIZE, "semaphore \"%s\" has %d slots already; resize(%d) changes that", name,
             row->count, change->amount);
    return AL_EXISTS;
  }
  if (target(change, row) > AL_SLOTS_MAX) {
    snprintf(words, AL_MESSAGE_SIZE, "\"%s\" would have %d slots; the most is %d", name, target(change, row),
             AL_SLOTS_MAX);
    return AL_LIMIT;
  }
  return AL_OK;
}

/* The slots to delete are those that exist above `low`, up to `high`. */
static void delete_range(const al_slot_plan *change, const al_slot_count *row, int *low, int *high) {
  int cleared = row->count + change->overshoot;
  bool settles_all = change->action == AL_RESIZE || change->action == AL_DESTROY;
  *low = settles_all || change->target < row->count ? change->target : row->count;
  *high = settles_all || cleared > row->highest ? row->highest : cleared;
  if (change->action == AL_REPAIR) *high = *low;
}

al_code al_slot_plan_plan(al_slot_plan *change, al_slot_count *row, char words[AL_MESSAGE_SIZE]) {
  int low, high;
  al_code code = judge(change, row, words);
  if (code != AL_OK) return code;
  change->target = target(change, row);
  delete_range(change, row, &low, &high);
  if (high <= low) return AL_OK;
  change->deletes = malloc((size_t)(high - low) * sizeof *change->deletes);
  if (!change->deletes) {
    snprintf(words, AL_MESSAGE_SIZE, "planning for \"%s\"", row->name);
    return AL_NO_MEMORY;
  }
  for (int i = 1; i <= high - low; i++) {
    int slot = change->ascending ? low + i : high + 1 - i;
    if (!al_slot_count_exists(row, slot)) continue;
    change->deletes[change->delete_count++] = slot;
    row->slots[slot - 1].exists = false;
  }
  return AL_OK;
}

void al_slot_plan_free(al_slot_plan *change) { free(change->deletes); }
