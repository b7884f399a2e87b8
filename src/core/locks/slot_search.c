/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/locks/slot_search.h"

#include <string.h>

#include "core/base/name.h"
#include "core/base/random.h"
#include "core/hold/exclusive.h"
#include "core/session/session.h"

#define WINDOW_FIRST 16
#define WINDOW_MOST 512

/* The index of the question about A[1], behind a window that begins elsewhere. */
static size_t first_index(const al_slot_search *look) { return (size_t)look->width * 2; }

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_slot_search *look = context;
  int slot = index < first_index(look) ? look->first + (int)(index / 2) : 1;
  (index % 2 == 0 ? al_name_slot : al_name_holder)(out, look->resource->name, slot);
}

/* The search goes neither past the last slot that may be taken, nor, once wrapped, past where it began. */
static int last_slot(const al_slot_search *look) {
  return look->wrapped ? look->start - 1 : look->range->most;
}

/* Asks for A and B of a window of slots. The first window also asks for A[1], if it begins elsewhere: the semaphore
 * may be gone while a stray slot is not. */
static void ask(al_slot_search *look, int first, int width) {
  al_op *op = look->op;
  al_probing probing = look->resource->probing;
  int last = last_slot(look);
  if (!al_op_has(op, &op->session->holder)) return;
  if (al_probing_publishes(op->session, probing) && !al_link_is_open(op->session->prober)) {
    look->view->state = AL_SEARCH_LOST; /* also if another operation has asked for it again */
    return;
  }
  look->first = first;
  look->width = width <= last - first + 1 ? width : last - first + 1;
  look->before = *look->view;
  look->asks_first = first > 1 && first == look->start;
  look->sure = al_probing_publishes(op->session, probing) ? 0 : first + look->width - 1;
  al_op_ask(op);
  al_probes_begin(&look->probes, op, AL_MESSAGE_PROBE, probing, first_index(look) + look->asks_first,
                  probe_name, look);
}

static int start_slot(const al_slot_search *look) {
  const al_slot_range *range = look->range;
  if (range->strategy == AL_LAST && range->last > 0) return range->last;
  if (range->strategy == AL_RANDOM) return 1 + (int)al_random_below(&look->op->session->random, range->known);
  return 1;
}

void al_slot_search_begin(al_slot_search *look, al_op *op, const al_resource *resource, al_slot_range *range,
                          al_search_result *view) {
  int highest = range->highest;
  look->op = op;
  look->resource = resource;
  look->range = range;
  look->view = view;
  look->start = start_slot(look);
  look->wrapped = false;
  look->spare = 0;
  /* Wide enough that one window likely shows all slots and the end of the row. */
  ask(look, look->start, highest > 0 && highest < WINDOW_FIRST ? highest + 1 : WINDOW_FIRST);
}

/* Returns how many slots were claimed in vain longer ago than this one; -1 if this one was not. */
static int rank(const al_slot_search *look, int slot) {
  int i = 0;
  while (i < look->avoided_count && look->avoided[i] != slot) i++;
  return i < look->avoided_count ? i : -1;
}

void al_slot_search_deprioritise(al_slot_search *look, int slot) {
  int at = rank(look, slot);
  if (at < 0) at = look->avoided_count < AL_AVOIDED_MOST ? look->avoided_count++ : 0;
  memmove(look->avoided + at, look->avoided + at + 1,
          (size_t)(look->avoided_count - at - 1) * sizeof *look->avoided);
  look->avoided[look->avoided_count - 1] = slot;
}

/* ---- a window of answers ---------------------------------------------------------------------------------------- */

/* If this very connection holds, claims or still undoes the slot, the broker would let us declare its queue again. */
static const al_exclusive *find_ours(const al_slot_search *look, int slot) {
  char holder[AL_NAME_SIZE];
  al_name_holder(holder, look->resource->name, slot);
  return al_exclusive_find(look->op->session, holder);
}

/* Counts one slot that exists; true if it may be claimed. */
static bool consider(al_slot_search *look, int slot, al_answer a, al_answer b) {
  const al_exclusive *ours = find_ours(look, slot);
  look->view->found++;
  look->view->mine += ours && ours->claim.state == AL_CLAIM_HELD;
  if (a == AL_ANSWER_UNAVAILABLE) {
    look->view->unavailable++;
    return false;
  }
  if (b == AL_ANSWER_ABSENT && !ours) return true;
  look->view->busy++;
  if (!ours && look->view->suspect_count < AL_SUSPECTS_MOST)
    look->view->suspects[look->view->suspect_count++] = slot;
  return false;
}

/* Learns from the whole window how many slots there are, or are at least, and which is the highest. A returned probe
 * may mean a node that is down: only a passive declare makes it certain that no slot follows. */
static void learn(const al_slot_search *look) {
  al_slot_range *range = look->range;
  bool is_row = true;
  for (int i = 0; i < look->width; i++) {
    int slot = look->first + i;
    al_answer a = look->probes.answers[i * 2];
    if (a == AL_ANSWER_ABSENT) {
      if (is_row) range->known = slot - 1;
      is_row = false;
      if (slot > look->sure) continue;
      range->highest = slot - 1;
      return;
    }
    if (a != AL_ANSWER_PRESENT && a != AL_ANSWER_UNAVAILABLE) return;
    if (is_row && range->known < slot) range->known = slot;
    if (range->highest < slot) range->highest = slot;
  }
}

static int next_width(const al_slot_search *look) {
  return look->width * 2 <= WINDOW_MOST ? look->width * 2 : WINDOW_MOST;
}

/* The whole row was read. A slot that was free in an earlier window may have been claimed on this connection since:
 * then the search begins again. */
static void row_read(al_slot_search *look) {
  if (look->spare && find_ours(look, look->spare)) {
    *look->view = (al_search_result){.state = AL_SEARCH_PENDING};
    al_slot_search_begin(look, look->op, look->resource, look->range, look->view);
    return;
  }
  look->view->slot = look->spare;
  look->view->state = look->spare ? AL_SEARCH_FREE : AL_SEARCH_NONE;
}

/* The row ends before this slot. */
static void end_of_row(al_slot_search *look, int slot) {
  if (slot == 1) {
    al_op_fail(look->op, AL_NOT_FOUND, "there is no semaphore \"%s\"; an administrator creates it",
               look->resource->name);
  } else if (look->view->slot) {
    look->view->state = AL_SEARCH_FREE;
  } else if (look->start == 1 || look->wrapped) {
    row_read(look);
  } else {
    look->wrapped = true;
    ask(look, 1, next_width(look));
  }
}

static void look_on(al_slot_search *look) {
  int next = look->first + look->width;
  if (look->view->slot)
    look->view->state = AL_SEARCH_FREE;
  else if (next > last_slot(look))
    row_read(look);
  else
    ask(look, next, next_width(look));
}

/* ---- doubts ----------------------------------------------------------------------------------------------------- */

/* The answer for A of a slot in the window, or of the first slot. */
static al_answer *answer_at(const al_slot_search *look, int slot) {
  return &look->probes.answers[slot < look->first ? first_index(look) : (size_t)(slot - look->first) * 2];
}

/* The highest slot of the window that exists; or `slot`, which does not. No gap begins before the window. */
static int highest_from(const al_slot_search *look, int slot) {
  if (slot < look->first) return slot;
  int highest = look->first + look->width - 1;
  while (highest > slot && *answer_at(look, highest) == AL_ANSWER_ABSENT) highest--;
  return highest;
}

/* True if no slot is free and the end of the row, before this slot, would decide something: that there is no
 * semaphore, that nobody else can release a slot, or that what lies behind a gap is no slot. */
static bool decides(const al_slot_search *look, int slot) {
  const al_search_result *view = look->view;
  if (slot <= look->sure || view->slot) return false;
  bool is_own = view->found > 0 && view->mine == view->found && !look->op->session->is_shared;
  return slot == 1 || is_own || highest_from(look, slot) > slot;
}

/* The slot that question `index` is about. Slots that are present are not asked for again. */
static int again_slot(const al_slot_search *look, size_t index) {
  int slot = look->again_from;
  while (*answer_at(look, slot) != AL_ANSWER_ABSENT || index-- > 0) slot++;
  return slot;
}

static void again_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_slot_search *look = context;
  al_name_slot(out, look->resource->name, again_slot(look, index));
}

/* Asks for this slot, and for all others that are missing below the highest. */
static void ask_again(al_slot_search *look, int slot) {
  int highest = highest_from(look, slot);
  size_t count = 1;
  look->again_from = slot;
  look->sure = highest > slot ? highest - 1 : slot;
  for (int other = slot + 1; other <= look->sure; other++)
    count += *answer_at(look, other) == AL_ANSWER_ABSENT;
  al_op_ask(look->op);
  al_probes_begin(&look->again, look->op, AL_MESSAGE_PROBE, AL_PROBE_PASSIVE, count, again_name, look);
}

/* Believes the passive declares: a slot that they find exists. False: an answer decides nothing. */
static bool believe(al_slot_search *look) {
  size_t index = 0;
  for (int slot = look->again_from; index < look->again.count; slot++) {
    al_answer *a = answer_at(look, slot);
    if (*a != AL_ANSWER_ABSENT) continue;
    if (al_probes_undecided(&look->again, index)) return false;
    *a = look->again.answers[index++];
  }
  look->again_from = 0;
  *look->view = look->before;
  return true;
}

/* ---- the window, read ------------------------------------------------------------------------------------------- */

static void absent(al_slot_search *look, int slot) {
  (decides(look, slot) ? ask_again : end_of_row)(look, slot);
}

/* False: A[1] was asked for behind the window, and does not exist or is not known. */
static bool has_first(al_slot_search *look) {
  if (!look->asks_first) return true;
  bool is_there = *answer_at(look, 1) != AL_ANSWER_ABSENT;
  if (!is_there) absent(look, 1);
  return is_there && !al_probes_undecided(&look->probes, first_index(look));
}

/* Reads the slots in order, up to one that is free. The first that is absent ends the semaphore. */
static void read_window(al_slot_search *look) {
  if (!has_first(look)) return;
  for (int i = 0; i < look->width && look->view->slot == 0; i++) {
    size_t index = (size_t)i * 2;
    al_answer a = look->probes.answers[index], b = look->probes.answers[index + 1];
    int slot = look->first + i;
    if (a == AL_ANSWER_ABSENT) {
      absent(look, slot);
      return;
    }
    if (al_probes_undecided(&look->probes, index) || al_probes_undecided(&look->probes, index + 1)) return;
    if (!consider(look, slot, a, b)) continue;
    if (rank(look, slot) < 0)
      look->view->slot = slot;
    else if (!look->spare || rank(look, slot) < rank(look, look->spare))
      look->spare = slot;
  }
  look_on(look);
}

/* False: there is nothing to read; the view, or the failed operation, tells why. */
static bool is_answered(al_slot_search *look) {
  if (look->again_from > 0) return believe(look);
  bool is_lost = !look->probes.is_passive && al_op_lost_prober(look->op);
  if (is_lost) look->view->state = AL_SEARCH_LOST;
  return !is_lost;
}

al_search_state al_slot_search_poll(al_slot_search *look) {
  if (look->op->done || look->view->state != AL_SEARCH_PENDING) return look->view->state;
  if (look->probes.pending > 0 || look->again.pending > 0) return AL_SEARCH_PENDING;
  al_op_answered(look->op);
  if (is_answered(look)) {
    learn(look);
    read_window(look);
  }
  return look->view->state;
}

void al_slot_search_cancel(al_slot_search *look) {
  al_probes_cancel(&look->probes);
  al_probes_cancel(&look->again);
}

void al_slot_search_free(al_slot_search *look) {
  al_probes_free(&look->probes);
  al_probes_free(&look->again);
}
