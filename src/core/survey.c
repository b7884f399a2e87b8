/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/name.h"
#include "core/session.h"
#include "core/turn.h"
#include "core/wait.h"

#define WINDOW_FIRST 16
#define WINDOW_MOST 512

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_survey *survey = context;
  int questions = survey->with_holders ? 2 : 1, slot = survey->first + (int)index / questions;
  (index % (size_t)questions == 0 ? al_name_slot : al_name_holder)(out, survey->name, slot);
}

static void ask(al_survey *survey) {
  if (!al_op_has_probing(survey->op, AL_PROBE_AUTO)) return;
  size_t questions = (size_t)survey->width * (survey->with_holders ? 2 : 1);
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

/* Takes one slot's answers down; false if they decide nothing. */
static bool note(al_survey *survey, int slot, bool *is_empty) {
  size_t questions = survey->with_holders ? 2 : 1, index = (size_t)(slot - survey->first) * questions;
  for (size_t i = index; i < index + questions; i++)
    if (al_probes_undecided(&survey->probes, i)) return false;
  bool exists = survey->probes.answers[index] != AL_ANSWER_ABSENT;
  bool held = survey->with_holders && survey->probes.answers[index + 1] != AL_ANSWER_ABSENT;
  survey->slots[slot - 1] = (al_slot){exists, held};
  survey->seen = slot;
  if (exists && survey->count == slot - 1) survey->count = slot;
  if (exists) survey->highest = slot;
  *is_empty = *is_empty && !exists && !held;
  return true;
}

bool al_survey_done(al_survey *survey) {
  int last = survey->first + survey->width - 1;
  bool is_empty = true;
  if (survey->op->done || survey->probes.pending > 0 || !reserve(survey, last)) return false;
  al_op_answered(survey->op);
  for (int slot = survey->first; slot <= last; slot++)
    if (!note(survey, slot, &is_empty)) return false;
  bool is_past =
      survey->first > survey->count + 1 && last >= survey->count + survey->beyond && last >= survey->least;
  if ((is_empty && is_past) || last >= AL_SLOTS_MAX) return true;
  survey->first = last + 1;
  survey->width = survey->width * 2 <= WINDOW_MOST ? survey->width * 2 : WINDOW_MOST;
  if (survey->width > AL_SLOTS_MAX - last) survey->width = AL_SLOTS_MAX - last;
  ask(survey);
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
  if (!al_op_needs_probing(op, AL_PROBE_AUTO)) return;
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
