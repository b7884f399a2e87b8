/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The semaphore as its clients see it (docs/specification.md, 2.3). Steps 1 and 2, the search for a slot that exists
 * and is free, are in slot_search.h. Steps 3 and 4 are a claim (hold/holder_queue.h), and a lost race
 * (acquire/race.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/hold/gather.h"
#include "core/locks/gate.h"
#include "core/locks/slot_search.h"

struct al_semaphore {
  al_resource resource; /* first */
  al_slot_range range;
};

typedef struct slot_acquire {
  al_acquire acquire;
  al_slot_search look;
} slot_acquire;

static al_semaphore *semaphore_of(const al_acquire *self) { return (al_semaphore *)self->resource; }

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  const al_search_result *last = &self->last;
  char refusing[64] = "";
  if (last->unavailable > 0)
    snprintf(refusing, sizeof refusing, ", %d refused by the broker", last->unavailable);
  if (last->found == 0)
    snprintf(out, AL_MESSAGE_SIZE, "the broker had not answered yet");
  else if (last->busy + last->unavailable < last->found)
    al_acquire_describe_free(self, "a slot", out);
  else
    snprintf(out, AL_MESSAGE_SIZE, "%d of %d held%s", last->busy, last->found, refusing);
}

static void words(const al_acquire *self, al_code code, char out[AL_ACQUIRE_WORDS]) {
  const char *name = self->resource->name;
  const al_search_result *view = &self->view;
  if (code == AL_TIMEOUT)
    snprintf(out, AL_ACQUIRE_WORDS, "no slot of \"%s\" came free", name);
  else if (code == AL_DEADLOCK)
    snprintf(out, AL_ACQUIRE_WORDS, "all %d slots of \"%s\" are already held by this connection", view->found,
             name);
  else if (code == AL_UNAVAILABLE)
    snprintf(out, AL_ACQUIRE_WORDS,
             "%d of %d slots of \"%s\" are refused by the broker; is a node down, or a policy in the way?",
             view->unavailable, view->found, name);
  else if (view->slot)
    snprintf(out, AL_ACQUIRE_WORDS, "a slot of \"%s\" is free, but other waiters come first", name);
  else
    snprintf(out, AL_ACQUIRE_WORDS, "all %d slots of \"%s\" are held", view->found, name);
}

/* ---- the search, and the claim ---------------------------------------------------------------------------------- */

static void look(al_acquire *self) {
  al_slot_search_begin(&((slot_acquire *)self)->look, &self->op, self->resource, &semaphore_of(self)->range,
                       &self->view);
}

static al_search_state inspect(al_acquire *self) {
  return al_slot_search_poll(&((slot_acquire *)self)->look);
}

static void cancel(al_acquire *self) { al_slot_search_cancel(&((slot_acquire *)self)->look); }

static void look_free(al_acquire *self) { al_slot_search_free(&((slot_acquire *)self)->look); }

static al_exclusive *claim(al_acquire *self) { return al_slot_search_claim(&((slot_acquire *)self)->look); }

static void missed(al_acquire *self) {
  al_slot_search_deprioritise(&((slot_acquire *)self)->look, self->view.slot);
}

static bool may_claim(const al_acquire *self) {
  return al_slot_search_may_claim(&((const slot_acquire *)self)->look);
}

static void claimed(al_acquire *self) {
  al_slot_search_note_won(&((slot_acquire *)self)->look);
  al_acquire_hand_over(self);
}

static void suspect_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_acquire *self = context;
  al_name_holder(out, self->resource->name, self->view.suspects[index]);
}

static const al_acquire_kind slot_kind = {.search = look,
                                          .poll = inspect,
                                          .cancel = cancel,
                                          .free = look_free,
                                          .claim = claim,
                                          .may_claim = may_claim,
                                          .claimed = claimed,
                                          .missed = missed,
                                          .lock = AL_LOCK_SLOT,
                                          .suspect = suspect_name,
                                          .standing = describe,
                                          .failure_text = words};

/* ---- several slots ---------------------------------------------------------------------------------------------- */

static void use(void *from) { ((al_semaphore *)from)->resource.refs++; }

static void leave(void *from) { al_resource_drop(&((al_semaphore *)from)->resource); }

static bool is_holder(const void *from) {
  const al_resource *resource = &((const al_semaphore *)from)->resource;
  char name[AL_NAME_SIZE];
  for (const al_claim *claim = resource->session->claims; claim; claim = claim->next)
    if (claim->state == AL_CLAIM_HELD && al_queue_parse(claim->queue, name, NULL) == AL_QUEUE_SLOT_HELD &&
        strcmp(name, resource->name) == 0)
      return true;
  return false;
}

static al_op *enter_gate(void *from, const al_acquire_options *how) {
  const al_resource *resource = &((const al_semaphore *)from)->resource;
  al_lock_options options = {.max_attempts = resource->max_attempts, .probing = resource->probing};
  char queue[AL_NAME_SIZE], bell[AL_NAME_SIZE];
  al_name(queue, AL_SUFFIX_MANY, resource->name);
  al_name(bell, AL_SUFFIX_MANY_BELL, resource->name);
  return al_gate_enter(resource->session, resource->name, &options, queue, bell, how);
}

static al_op *take_one(void *from, const al_acquire_options *how) { return al_semaphore_acquire(from, how); }

/* A search that found a slot free did not see those behind it. */
static size_t slots_seen(const al_op *take) {
  const al_search_result *last = &((const al_acquire *)take)->last;
  return last->state == AL_SEARCH_NONE ? (size_t)last->found : 0;
}

static const al_gather_kind slots_kind = {.unit = "slot",
                                          .use = use,
                                          .leave = leave,
                                          .is_holder = is_holder,
                                          .enter = enter_gate,
                                          .take = take_one,
                                          .seen = slots_seen};

/* ---- for the outside -------------------------------------------------------------------------------------------- */

al_semaphore *al_semaphore_new(al_session *session, const char *name, const al_semaphore_options *options) {
  al_semaphore_options given = options ? *options : (al_semaphore_options){0};
  al_semaphore *semaphore = calloc(1, sizeof *semaphore);
  if (!semaphore) return NULL;
  al_resource_init(&semaphore->resource, session, name, given.max_attempts, given.probing);
  al_resource_share_memory(&semaphore->resource);
  al_name(semaphore->resource.bell, AL_SUFFIX_BELL, name);
  semaphore->resource.has_no_bell = given.silent;
  if (given.fenced) al_name(semaphore->resource.fence, AL_SUFFIX_FENCE, name);
  semaphore->range.strategy = given.strategy;
  semaphore->range.most = given.most > 0 ? given.most : AL_SLOTS_MAX;
  return semaphore;
}

void al_semaphore_drop(al_semaphore *semaphore) {
  if (semaphore) al_resource_drop(&semaphore->resource);
}

al_op *al_semaphore_acquire(al_semaphore *semaphore, const al_acquire_options *options) {
  const al_resource *resource = &semaphore->resource;
  if (al_gather_is_wanted(options))
    return al_gather_begin(resource->session, resource->name, &slots_kind, semaphore, options);
  return al_acquire_begin(&semaphore->resource, &slot_kind, sizeof(slot_acquire), options);
}
