/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/slot_plan.h"

#include <stdio.h>
#include <stdlib.h>

/* The lowest slot that exists past the row and past what overshooting clears away; 0 if there is none. */
static int stray(const al_change *change, const al_survey *survey) {
  for (int slot = survey->count + 1 + change->overshoot; slot <= survey->highest; slot++)
    if (al_survey_exists(survey, slot)) return slot;
  return 0;
}

static int target(const al_change *change, const al_survey *survey) {
  return al_action_target(change->action, change->amount, survey->count, survey->highest);
}

/* These put a row with gaps in order; the others refuse to act on one. */
static bool mends(const al_change *change) {
  return change->action == AL_RESIZE || change->action == AL_DESTROY || change->action == AL_REPAIR;
}

static al_code judge(const al_change *change, const al_survey *survey, char words[AL_MESSAGE_SIZE]) {
  const char *name = survey->name;
  if (survey->highest == 0 && !al_action_makes(change->action)) {
    snprintf(words, AL_MESSAGE_SIZE, "there is no semaphore \"%s\"; create it", name);
    return AL_NOT_FOUND;
  }
  if (!mends(change) && stray(change, survey)) {
    snprintf(words, AL_MESSAGE_SIZE, AL_SURVEY_GAP, name, stray(change, survey), name, survey->count + 1);
    return AL_CONFLICT;
  }
  if (change->action == AL_CREATE && survey->count > 0) {
    snprintf(words, AL_MESSAGE_SIZE, "semaphore \"%s\" has %d slots already; resize(%d) changes that", name,
             survey->count, change->amount);
    return AL_EXISTS;
  }
  if (target(change, survey) > AL_SLOTS_MAX) {
    snprintf(words, AL_MESSAGE_SIZE, "\"%s\" would have %d slots; the most is %d", name,
             target(change, survey), AL_SLOTS_MAX);
    return AL_LIMIT;
  }
  return AL_OK;
}

/* Deletes are the slots above `low`, up to `high`, that exist. */
static void delete_range(const al_change *change, const al_survey *survey, int *low, int *high) {
  int cleared = survey->count + change->overshoot;
  bool settles_all = change->action == AL_RESIZE || change->action == AL_DESTROY;
  *low = settles_all || change->target < survey->count ? change->target : survey->count;
  *high = settles_all || cleared > survey->highest ? survey->highest : cleared;
  if (change->action == AL_REPAIR) *high = *low;
}

al_code al_change_plan(al_change *change, al_survey *survey, char words[AL_MESSAGE_SIZE]) {
  int low, high;
  al_code code = judge(change, survey, words);
  if (code != AL_OK) return code;
  change->target = target(change, survey);
  delete_range(change, survey, &low, &high);
  if (high <= low) return AL_OK;
  change->deletes = malloc((size_t)(high - low) * sizeof *change->deletes);
  if (!change->deletes) {
    snprintf(words, AL_MESSAGE_SIZE, "planning for \"%s\"", survey->name);
    return AL_NO_MEMORY;
  }
  for (int i = 1; i <= high - low; i++) {
    int slot = change->ascending ? low + i : high + 1 - i;
    if (!al_survey_exists(survey, slot)) continue;
    change->deletes[change->delete_count++] = slot;
    survey->slots[slot - 1].exists = false;
  }
  return AL_OK;
}

void al_change_free(al_change *change) { free(change->deletes); }
