/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/slot_count.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"

#define WINDOW_FIRST 16
#define WINDOW_MOST 512

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_slot_count *row = context;
  int questions = row->with_holders ? 2 : 1, slot = row->first + (int)index / questions;
  (index % (size_t)questions == 0 ? al_name_slot : al_name_holder)(out, row->name, slot);
}

static void ask(al_slot_count *row) {
  if (!al_probing_has(row->op, AL_PROBE_AUTO)) return;
  size_t questions = (size_t)row->width * (row->with_holders ? 2 : 1);
  al_op_ask(row->op);
  al_probes_begin(&row->probes, row->op, AL_MESSAGE_PROBE, AL_PROBE_AUTO, questions, probe_name, row);
}

void al_slot_count_begin(al_slot_count *row, al_op *op, const char *name, bool with_holders, int beyond,
                         int least) {
  al_slot_count fresh = {
      .op = op, .name = name, .with_holders = with_holders, .beyond = beyond, .least = least};
  fresh.probes = row->probes;
  fresh.slots = row->slots;
  fresh.size = row->size;
  fresh.first = 1;
  fresh.width = WINDOW_FIRST;
  *row = fresh;
  ask(row);
}

static bool reserve(al_slot_count *row, int slots) {
  if (slots <= row->size) return true;
  al_slot *more = realloc(row->slots, (size_t)slots * sizeof *more);
  if (!more) {
    al_op_fail(row->op, AL_NO_MEMORY, "counting the slots of \"%s\"", row->name);
    return false;
  }
  row->slots = more;
  row->size = slots;
  return true;
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

/* Stores the answers about one slot. False: they decide nothing, and the operation has failed. */
static bool note(al_slot_count *row, int slot) {
  size_t questions = row->with_holders ? 2 : 1, index = (size_t)(slot - row->first) * questions;
  for (size_t i = index; i < index + questions; i++)
    if (al_probes_undecided(&row->probes, i)) return false;
  bool exists = row->probes.answers[index] != AL_ANSWER_ABSENT;
  bool held = row->with_holders && row->probes.answers[index + 1] != AL_ANSWER_ABSENT;
  row->slots[slot - 1] = (al_slot){.exists = exists, .held = held};
  row->seen = slot;
  if (exists) row->highest = slot;
  if (exists && row->count == slot - 1) row->count = slot;
  return true;
}

static bool note_window(al_slot_count *row) {
  int last = row->first + row->width - 1;
  if (!reserve(row, last)) return false;
  for (int slot = row->first; slot <= last; slot++)
    if (!note(row, slot)) return false;
  return true;
}

static bool has_seen_all(const al_slot_count *row) {
  int last = row->seen;
  if (last >= AL_SLOTS_MAX) return true;
  for (int slot = row->first; slot <= last; slot++)
    if (row->slots[slot - 1].exists || row->slots[slot - 1].held) return false;
  return row->first > row->count + 1 && last >= row->count + row->beyond && last >= row->least;
}

static void count_further(al_slot_count *row) {
  row->first = row->seen + 1;
  row->width = row->width * 2 <= WINDOW_MOST ? row->width * 2 : WINDOW_MOST;
  if (row->width > AL_SLOTS_MAX - row->seen) row->width = AL_SLOTS_MAX - row->seen;
  ask(row);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

bool al_slot_count_poll(al_slot_count *row) {
  if (row->op->done || row->probes.pending > 0) return false;
  al_op_answered(row->op);
  if (!note_window(row)) return false;
  bool is_all = has_seen_all(row);
  if (!is_all) count_further(row);
  return is_all;
}

bool al_slot_count_exists(const al_slot_count *row, int slot) {
  return slot <= row->seen && row->slots[slot - 1].exists;
}

void al_slot_count_free(al_slot_count *row) {
  al_probes_free(&row->probes);
  free(row->slots);
  row->slots = NULL;
}

/* ---- operations of their own ------------------------------------------------------------------------------------ */

typedef struct count_op {
  al_op op;
  char name[AL_NAME_SIZE];
  bool is_status;
  al_slot_count row;
} count_op;

static void count_stop(al_op *op) { al_probes_cancel(&((count_op *)op)->row.probes); }

static void count_free(al_op *op) { al_slot_count_free(&((count_op *)op)->row); }

static void give_slots(al_op *op, al_slot_count *row) {
  op->slots = row->slots;
  row->slots = NULL;
  op->seen = (size_t)row->seen;
  while (op->seen > 0 && !op->slots[op->seen - 1].exists && !op->slots[op->seen - 1].held) op->seen--;
}

static void counting(al_op *op) {
  count_op *self = (count_op *)op;
  al_slot_count *row = &self->row;
  if (!al_slot_count_poll(row)) return;
  op->count = (size_t)row->count;
  if (!self->is_status && row->highest > row->count) {
    al_op_fail(op, AL_CONFLICT, AL_SLOT_COUNT_GAP, self->name, row->highest, self->name, row->count + 1);
    return;
  }
  give_slots(op, row);
  al_op_finish(op);
}

static void wanting_links(al_op *op) {
  count_op *self = (count_op *)op;
  if (!al_probing_needs(op, AL_PROBE_AUTO)) return;
  al_op_enter(op, counting);
  al_slot_count_begin(&self->row, op, self->name, self->is_status, 0, 0);
}

static al_op *count_op_begin(al_session *session, const char *name, bool is_status,
                             const al_admin_options *options) {
  AL_TURN(session);
  count_op *self = (count_op *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->is_status = is_status;
  self->op.stop = count_stop;
  self->op.free = count_free;
  return al_op_start(&self->op, wanting_links,
                     al_deadline_after(session->now, options ? options->timeout : 30 * AL_SECOND));
}

al_op *al_admin_slots(al_session *session, const char *name, const al_admin_options *options) {
  return count_op_begin(session, name, false, options);
}

al_op *al_admin_status(al_session *session, const char *name, const al_admin_options *options) {
  return count_op_begin(session, name, true, options);
}
