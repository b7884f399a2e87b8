/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/locks/slot_search.h"

#include <string.h>

#include "core/base/name.h"
#include "core/base/random.h"
#include "core/hold/holder_queue.h"
#include "core/session/session.h"

#define WINDOW_NARROW 2
#define WINDOW_FIRST 16
#define WINDOW_MOST 512

/* The index of the question about A[1], behind a window that begins elsewhere. */
static size_t first_index(const al_slot_search *search) { return (size_t)search->width * 2; }

static void probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_slot_search *search = context;
  int slot = index < first_index(search) ? search->first + (int)(index / 2) : 1;
  (index % 2 == 0 ? al_name_slot : al_name_holder)(out, search->resource->name, slot);
}

/* The search goes neither past the last slot that may be taken, nor, once wrapped, past where it began. */
static int last_slot(const al_slot_search *search) {
  return search->wrapped ? search->start - 1 : search->range->most;
}

/* Asks for A and B of a window of slots. The first window also asks for A[1], if it begins elsewhere: the semaphore
 * may be gone while a stray slot is not. */
static void ask(al_slot_search *search, int first, int width) {
  al_op *op = search->op;
  al_probing probing = search->resource->probing;
  int last = last_slot(search);
  if (!al_op_has(op, &op->session->holder)) return;
  if (al_probing_publishes(op->session, probing) && !al_link_is_open(op->session->prober)) {
    search->view->state = AL_SEARCH_LOST; /* also if another operation has asked for it again */
    return;
  }
  search->first = first;
  search->width = width <= last - first + 1 ? width : last - first + 1;
  search->before = *search->view;
  search->asks_first = first > 1 && first == search->start;
  al_op_ask(op);
  al_probes_begin(&search->probes, op, AL_MESSAGE_PROBE, probing, first_index(search) + search->asks_first,
                  probe_name, search);
}

/* If this very connection holds, claims or still undoes the slot, the broker would let us declare its queue again. */
static const al_exclusive *find_ours(const al_slot_search *search, int slot) {
  char holder[AL_NAME_SIZE];
  al_name_holder(holder, search->resource->name, slot);
  return al_exclusive_find(search->op->session, holder);
}

bool al_slot_search_may_claim(const al_slot_search *search) { return !find_ours(search, search->view->slot); }

al_exclusive *al_slot_search_claim(const al_slot_search *search) {
  const char *name = search->resource->name;
  char holder[AL_NAME_SIZE], slot[AL_NAME_SIZE];
  al_name_holder(holder, name, search->view->slot);
  al_name_slot(slot, name, search->view->slot);
  return al_exclusive_begin(search->op, &(al_exclusive_plan){.queue = holder, .beside = slot});
}

static bool may_begin(const void *context, int slot) {
  const al_slot_search *search = context;
  return slot <= search->range->most && !find_ours(search, slot);
}

/* The session's other searches begin elsewhere meanwhile. */
static int last_start(al_slot_search *search) {
  al_memory *memory = search->resource->memory;
  if (search->recalled == 0) search->recalled = al_memory_recall(memory, may_begin, search);
  int slot = search->recalled > 0 ? search->recalled : memory->last;
  return slot > 0 && slot <= search->range->most ? slot : 1;
}

static int random_start(const al_slot_search *search) {
  int known = search->resource->memory->known, most = search->range->most;
  return 1 + (int)al_random_below(&search->op->session->random, known < most ? known : most);
}

static int start_slot(al_slot_search *search) {
  switch (search->range->strategy) {
    case AL_LAST:
      return last_start(search);
    case AL_RANDOM:
      return random_start(search);
    default:
      return 1;
  }
}

/* Wide enough that one window likely shows all slots and the end of the row. */
static int wide(const al_slot_search *search) {
  int known = search->resource->memory->known;
  return known > 0 && known < WINDOW_FIRST ? known + 1 : WINDOW_FIRST;
}

/* Whether all slots can be met at random is known only of a row that was seen to end. */
static bool begins_narrow(const al_slot_search *search) {
  const al_memory *memory = search->resource->memory;
  return memory->is_quiet && (search->range->strategy != AL_RANDOM || memory->has_end);
}

void al_slot_search_begin(al_slot_search *search, al_op *op, const al_resource *resource,
                          al_slot_range *range, al_search_result *view) {
  search->op = op;
  search->resource = resource;
  search->range = range;
  search->view = view;
  search->start = start_slot(search);
  search->wrapped = false;
  search->picks_anywhere = range->strategy == AL_RANDOM && resource->memory->known == 0;
  search->spare = 0;
  search->is_narrow = begins_narrow(search);
  ask(search, search->start, search->is_narrow ? WINDOW_NARROW : wide(search));
}

/* False: a narrow window would have shown the slot that was found. */
static bool is_past_narrow(const al_slot_search *search) {
  int slot = search->view->slot;
  if (slot > 0) return slot < search->start || slot >= search->start + WINDOW_NARROW;
  return search->view->state != AL_SEARCH_PENDING;
}

void al_slot_search_note_won(const al_slot_search *search) {
  bool is_quiet = search->avoided_count == 0 && !is_past_narrow(search);
  al_memory_note_won(search->resource->memory, search->view->slot, is_quiet);
}

/* Returns how many slots were claimed in vain longer ago than this one; -1 if this one was not. */
static int rank(const al_slot_search *search, int slot) {
  int i = 0;
  while (i < search->avoided_count && search->avoided[i] != slot) i++;
  return i < search->avoided_count ? i : -1;
}

void al_slot_search_deprioritise(al_slot_search *search, int slot) {
  int at = rank(search, slot);
  if (at < 0) at = search->avoided_count < AL_AVOIDED_MOST ? search->avoided_count++ : 0;
  memmove(search->avoided + at, search->avoided + at + 1,
          (size_t)(search->avoided_count - at - 1) * sizeof *search->avoided);
  search->avoided[search->avoided_count - 1] = slot;
  search->resource->memory->is_quiet = false;
}

/* ---- a window of answers ---------------------------------------------------------------------------------------- */

/* Counts one slot that exists; true if it may be claimed. */
static bool consider(al_slot_search *search, int slot, al_answer a, al_answer b) {
  const al_exclusive *ours = find_ours(search, slot);
  search->view->found++;
  search->view->mine += ours && ours->claim.state == AL_CLAIM_HELD;
  if (a == AL_ANSWER_UNAVAILABLE) {
    search->view->unavailable++;
    return false;
  }
  if (b == AL_ANSWER_ABSENT && !ours) return true;
  search->view->busy++;
  if (!ours && search->view->suspect_count < AL_SUSPECTS_MOST)
    search->view->suspects[search->view->suspect_count++] = slot;
  return false;
}

/* Learns from the whole window how many slots there are, or are at least. */
static void learn(const al_slot_search *search) {
  al_memory *memory = search->resource->memory;
  for (int i = 0; i < search->width; i++) {
    int slot = search->first + i;
    al_answer a = search->probes.answers[i * 2];
    if (a == AL_ANSWER_ABSENT) {
      memory->known = slot - 1;
      memory->has_end = true;
      return;
    }
    if (a != AL_ANSWER_PRESENT && a != AL_ANSWER_UNAVAILABLE) return;
    if (memory->known >= slot) continue;
    memory->known = slot;
    memory->has_end = false;
  }
}

static int next_width(const al_slot_search *search) {
  if (search->width < WINDOW_FIRST)
    return wide(search) > 2 * search->width ? wide(search) : 2 * search->width;
  return search->width * 2 <= WINDOW_MOST ? search->width * 2 : WINDOW_MOST;
}

/* The whole row was read. A slot that was free in an earlier window may have been claimed on this connection since:
 * then the search begins again. */
static void row_read(al_slot_search *search) {
  if (search->spare && find_ours(search, search->spare)) {
    *search->view = (al_search_result){.state = AL_SEARCH_PENDING};
    al_slot_search_begin(search, search->op, search->resource, search->range, search->view);
    return;
  }
  search->view->slot = search->spare;
  search->view->state = search->spare ? AL_SEARCH_FREE : AL_SEARCH_NONE;
}

/* The row ends before this slot. */
static void end_of_row(al_slot_search *search, int slot) {
  if (slot == 1) {
    al_memory_clear(search->resource->memory);
    al_op_fail(
        search->op, AL_NOT_FOUND,
        "there is no semaphore \"%s\"; an administrator creates it (amqp-lock-admin create, conn:admin)",
        search->resource->name);
  } else if (search->view->slot) {
    search->view->state = AL_SEARCH_FREE;
  } else if (search->start == 1 || search->wrapped) {
    row_read(search);
  } else {
    search->wrapped = true;
    ask(search, 1, next_width(search));
  }
}

static void search_on(al_slot_search *search) {
  int next = search->first + search->width;
  search->is_narrow = false;
  if (search->view->slot)
    search->view->state = AL_SEARCH_FREE;
  else if (next > last_slot(search))
    row_read(search);
  else
    ask(search, next, next_width(search));
}

/* ---- the window, read ------------------------------------------------------------------------------------------- */

static void ask_wide(al_slot_search *search) {
  search->is_narrow = false;
  *search->view = search->before;
  ask(search, search->first, wide(search));
}

static void absent(al_slot_search *search, int slot) {
  if (search->is_narrow)
    ask_wide(search);
  else
    end_of_row(search, slot);
}

/* False: A[1] was asked for behind the window, and does not exist or is not known. */
static bool has_first(al_slot_search *search) {
  if (!search->asks_first) return true;
  bool is_there = search->probes.answers[first_index(search)] != AL_ANSWER_ABSENT;
  if (!is_there) absent(search, 1);
  return is_there && !al_probes_undecided(&search->probes, first_index(search));
}

static bool is_free(const al_slot_search *search, int i) {
  const al_answer *answers = search->probes.answers + (size_t)i * 2;
  int slot = search->first + i;
  return answers[0] == AL_ANSWER_PRESENT && answers[1] == AL_ANSWER_ABSENT && !find_ours(search, slot) &&
         rank(search, slot) < 0;
}

/* Picks one of the free slots of the window, each with the same probability. None may be free. */
static void pick(al_slot_search *search) {
  int count = 0;
  for (int i = 0; i < search->width && search->probes.answers[i * 2] != AL_ANSWER_ABSENT; i++) {
    if (!is_free(search, i)) continue;
    count++;
    if (count == 1 || al_random_below(&search->op->session->random, count) == 0)
      search->view->slot = search->first + i;
  }
}

/* Reads the slots in order, up to one that is free. The first that is absent ends the semaphore. */
static void read_window(al_slot_search *search) {
  if (!has_first(search)) return;
  if (search->picks_anywhere) pick(search);
  for (int i = 0; i < search->width && search->view->slot == 0; i++) {
    size_t index = (size_t)i * 2;
    al_answer a = search->probes.answers[index], b = search->probes.answers[index + 1];
    int slot = search->first + i;
    if (a == AL_ANSWER_ABSENT) {
      absent(search, slot);
      return;
    }
    if (al_probes_undecided(&search->probes, index) || al_probes_undecided(&search->probes, index + 1))
      return;
    if (!consider(search, slot, a, b)) continue;
    if (rank(search, slot) < 0)
      search->view->slot = slot;
    else if (!search->spare || rank(search, slot) < rank(search, search->spare))
      search->spare = slot;
  }
  search_on(search);
}

al_search_state al_slot_search_poll(al_slot_search *search) {
  if (search->op->done || search->view->state != AL_SEARCH_PENDING) return search->view->state;
  if (search->probes.pending > 0) return AL_SEARCH_PENDING;
  al_op_answered(search->op);
  if (!search->probes.is_passive && al_op_lost_prober(search->op)) {
    search->view->state = AL_SEARCH_LOST;
    return AL_SEARCH_LOST;
  }
  learn(search);
  read_window(search);
  if (is_past_narrow(search)) search->resource->memory->is_quiet = false;
  return search->view->state;
}

void al_slot_search_cancel(al_slot_search *search) { al_probes_cancel(&search->probes); }

void al_slot_search_free(al_slot_search *search) { al_probes_free(&search->probes); }
