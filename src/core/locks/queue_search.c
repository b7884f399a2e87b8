/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/locks/queue_search.h"

#include <stdio.h>

#include "core/session/session.h"

static void queue_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_queue_search *)context)->queue);
}

/* Released, but not gone yet. */
static bool is_leaving(const al_exclusive *ours) {
  if (!ours || ours->claim.is_denied) return false;
  return ours->claim.state == AL_CLAIM_RELEASING || ours->claim.state == AL_CLAIM_UNDOING;
}

/* True if the prober was lost while we waited, even if another operation has asked for it again. */
static bool has_no_prober(const al_op *op) {
  return al_link_is_open(&op->session->holder) && !al_link_is_open(op->session->prober);
}

static void ask(al_queue_search *search, al_acquire *self) {
  al_op *op = &self->op;
  al_probing probing = self->resource->probing;
  if (al_probing_publishes(op->session, probing) && has_no_prober(op)) {
    self->view.state = AL_SEARCH_LOST;
    return;
  }
  if (!al_probing_has(op, probing)) return;
  search->is_asked = true;
  al_op_ask(op);
  al_message message = self->line.joins_first ? AL_MESSAGE_WAITING : AL_MESSAGE_PROBE;
  search->revokes = self->options.revoke && !search->revokes; /* the holder must learn both */
  if (search->revokes) message = AL_MESSAGE_REVOKE;
  al_probes_begin(&search->probes, op, message, probing, 1, queue_name, search);
}

static void ask_in_time(al_queue_search *search, al_acquire *self) {
  al_exclusive *ours = al_exclusive_find(self->op.session, search->queue);
  bool is_early = is_leaving(ours);
  al_op_watch(&self->op, is_early ? &ours->claim : NULL);
  if (!is_early)
    ask(search, self);
  else if (self->op.reply_by == AL_NEVER)
    al_op_ask(&self->op);
}

void al_queue_search_begin(al_queue_search *search, al_acquire *self) {
  search->is_asked = false;
  ask_in_time(search, self);
}

/* If this very connection holds, claims or still undoes the queue, the broker would let us declare it again. */
static void read_answers(al_queue_search *search, al_acquire *self) {
  al_search_result *view = &self->view;
  const al_exclusive *ours = al_exclusive_find(self->op.session, search->queue);
  bool is_free = search->probes.answers[0] == AL_ANSWER_ABSENT && !ours;
  view->found = 1;
  view->busy = !is_free;
  view->mine = ours && ours->claim.state == AL_CLAIM_HELD;
  view->suspect_count = !is_free && !ours;
  if (search->revokes && view->suspect_count > 0 && self->op.session->asks_by->denied)
    al_op_fail(&self->op, AL_REFUSED,
               "this user may not ask the holder of \"%s\" to release (it takes the permission to write)",
               self->resource->name);
  else
    view->state = is_free ? AL_SEARCH_FREE : AL_SEARCH_NONE;
}

al_search_state al_queue_search_poll(al_queue_search *search, al_acquire *self) {
  if (!search->is_asked && !self->op.done) ask_in_time(search, self);
  if (!search->is_asked || self->op.done || self->view.state != AL_SEARCH_PENDING ||
      search->probes.pending > 0)
    return self->view.state;
  al_op_answered(&self->op);
  if (!search->probes.is_passive && al_op_lost_prober(&self->op))
    self->view.state = AL_SEARCH_LOST;
  else if (!al_probes_undecided(&search->probes, 0))
    read_answers(search, self);
  return self->view.state;
}
