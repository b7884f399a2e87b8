/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/slot_count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

#define WINDOW_FIRST 16
#define WINDOW_MOST 512

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_survey *survey = context;
  int questions = survey->with_holders ? 2 : 1, slot = survey->first + (int)index / questions;
  (index % (size_t)questions == 0 ? al_name_slot : al_name_holder)(out, survey->name, slot);
}

static void ask(al_survey *survey) {
  if (!al_probing_has(survey->op, AL_PROBE_AUTO)) return;
  bool is_passive = !al_probing_publishes(survey->op->session, AL_PROBE_AUTO);
  size_t questions = (size_t)survey->width * (survey->with_holders ? 2 : 1);
  if (is_passive && survey->sure == survey->first - 1) survey->sure += survey->width;
  al_op_ask(survey->op);
  al_probes_begin(&survey->probes, survey->op, AL_PROBE_AUTO, questions, probe_name, survey);
}

void al_survey_begin(al_survey *survey, al_op *op, const char *name, bool with_holders, int beyond,
                     int least) {
  al_survey fresh = {.op = op, .name = name, .with_holders = with_holders, .beyond = beyond, .least = least};
  fresh.probes = survey->probes;
  fresh.slots = survey->slots;
  fresh.size = survey->size;
  fresh.first = 1;
  fresh.width = WINDOW_FIRST;
  *survey = fresh;
  ask(survey);
}

static bool reserve(al_survey *survey, int slots) {
  if (slots <= survey->size) return true;
  al_slot *more = realloc(survey->slots, (size_t)slots * sizeof *more);
  if (!more) {
    al_op_fail(survey->op, AL_NO_MEMORY, "counting the slots of \"%s\"", survey->name);
    return false;
  }
  survey->slots = more;
  survey->size = slots;
  return true;
}

/* The row goes on through what was found before behind a slot that was missing. */
static void note_exists(al_survey *survey, int slot) {
  survey->slots[slot - 1].exists = true;
  if (slot > survey->highest) survey->highest = slot;
  while (survey->count < survey->seen && survey->slots[survey->count].exists) survey->count++;
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

/* Takes one slot's answers down; false if they decide nothing. */
static bool note(al_survey *survey, int slot) {
  size_t questions = survey->with_holders ? 2 : 1, index = (size_t)(slot - survey->first) * questions;
  for (size_t i = index; i < index + questions; i++)
    if (al_probes_undecided(&survey->probes, i)) return false;
  bool held = survey->with_holders && survey->probes.answers[index + 1] != AL_ANSWER_ABSENT;
  survey->slots[slot - 1] = (al_slot){.held = held};
  survey->seen = slot;
  if (survey->probes.answers[index] != AL_ANSWER_ABSENT) note_exists(survey, slot);
  return true;
}

static bool note_window(al_survey *survey) {
  int last = survey->first + survey->width - 1;
  if (!reserve(survey, last)) return false;
  for (int slot = survey->first; slot <= last; slot++)
    if (!note(survey, slot)) return false;
  return true;
}

static bool has_seen_all(const al_survey *survey) {
  int last = survey->seen;
  if (last >= AL_SLOTS_MAX) return true;
  for (int slot = survey->first; slot <= last; slot++)
    if (survey->slots[slot - 1].exists || survey->slots[slot - 1].held) return false;
  return survey->first > survey->count + 1 && last >= survey->count + survey->beyond && last >= survey->least;
}

static void look_further(al_survey *survey) {
  survey->first = survey->seen + 1;
  survey->width = survey->width * 2 <= WINDOW_MOST ? survey->width * 2 : WINDOW_MOST;
  if (survey->width > AL_SLOTS_MAX - survey->seen) survey->width = AL_SLOTS_MAX - survey->seen;
  ask(survey);
}

/* ---- doubts ----------------------------------------------------------------------------------------------------- */

static void doubted_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_survey *survey = context;
  al_name_slot(out, survey->name, survey->sure + 1 + (int)index);
}

/* Whether what is absent is so in truth, as far as it decides: up to the end of the row, and in the row's gaps. */
static bool is_sure(al_survey *survey) {
  int end = survey->highest > survey->count ? survey->highest : survey->count + 1;
  if (end > survey->seen) end = survey->seen;
  if (survey->sure < survey->count) survey->sure = survey->count; /* what exists is beyond doubt */
  return survey->sure >= end;
}

/* One slot, the end of the row, and only if its node is down more of them at a time. */
static void doubt(al_survey *survey) {
  int width = survey->doubted * 2 < WINDOW_MOST ? survey->doubted * 2 : WINDOW_MOST;
  survey->doubted = width > 0 ? width : 1;
  if (survey->doubted > survey->seen - survey->sure) survey->doubted = survey->seen - survey->sure;
  survey->doubts = true;
  al_op_ask(survey->op);
  al_probes_begin(&survey->probes, survey->op, AL_PROBE_PASSIVE, (size_t)survey->doubted, doubted_name,
                  survey);
}

static bool note_doubts(al_survey *survey) {
  int first = survey->sure + 1;
  for (int i = 0; i < survey->doubted; i++) {
    if (al_probes_undecided(&survey->probes, (size_t)i)) return false;
    if (survey->probes.answers[i] != AL_ANSWER_ABSENT) note_exists(survey, first + i);
  }
  survey->sure += survey->doubted;
  survey->doubts = false;
  return true;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

bool al_survey_done(al_survey *survey) {
  if (survey->op->done || survey->probes.pending > 0) return false;
  al_op_answered(survey->op);
  if (!(survey->doubts ? note_doubts(survey) : note_window(survey))) return false;
  if (!has_seen_all(survey))
    look_further(survey);
  else if (!is_sure(survey))
    doubt(survey);
  else
    return true;
  return false;
}

bool al_survey_exists(const al_survey *survey, int slot) {
  return slot <= survey->seen && survey->slots[slot - 1].exists;
}

void al_survey_free(al_survey *survey) {
  al_probes_free(&survey->probes);
  free(survey->slots);
  survey->slots = NULL;
}

/* ---- as operations of their own --------------------------------------------------------------------------------- */

typedef struct survey_op {
  al_op op;
  char name[AL_NAME_SIZE];
  bool is_status;
  al_survey survey;
} survey_op;

static void survey_stop(al_op *op) { al_probes_cancel(&((survey_op *)op)->survey.probes); }

static void survey_free(al_op *op) { al_survey_free(&((survey_op *)op)->survey); }

static void give_slots(al_op *op, al_survey *survey) {
  op->slots = survey->slots;
  survey->slots = NULL;
  op->seen = (size_t)survey->seen;
  while (op->seen > 0 && !op->slots[op->seen - 1].exists && !op->slots[op->seen - 1].held) op->seen--;
}

static void surveying(al_op *op) {
  survey_op *self = (survey_op *)op;
  al_survey *survey = &self->survey;
  if (!al_survey_done(survey)) return;
  op->count = (size_t)survey->count;
  if (!self->is_status && survey->highest > survey->count) {
    al_op_fail(op, AL_CONFLICT, AL_SURVEY_GAP, self->name, survey->highest, self->name, survey->count + 1);
    return;
  }
  give_slots(op, survey);
  al_op_finish(op);
}

static void wanting_links(al_op *op) {
  survey_op *self = (survey_op *)op;
  if (!al_probing_needs(op, AL_PROBE_AUTO)) return;
  op->step = surveying;
  al_survey_begin(&self->survey, op, self->name, self->is_status, 0, 0);
}

static al_op *survey_op_begin(al_session *session, const char *name, bool is_status,
                              const al_admin_options *options) {
  AL_TURN(session);
  survey_op *self = (survey_op *)al_op_new(session, sizeof *self);
  if (!self) return NULL;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->is_status = is_status;
  self->op.stop = survey_stop;
  self->op.free = survey_free;
  return al_op_start(&self->op, wanting_links,
                     al_wait_until(session->now, options ? options->timeout : 30 * AL_SECOND));
}

al_op *al_admin_slots(al_session *session, const char *name, const al_admin_options *options) {
  return survey_op_begin(session, name, false, options);
}

al_op *al_admin_status(al_session *session, const char *name, const al_admin_options *options) {
  return survey_op_begin(session, name, true, options);
}
