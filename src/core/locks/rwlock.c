/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/locks/rwlock.h"

#include <stdlib.h>

#include "core/base/name.h"
#include "core/session/session.h"

void al_rw_door_name(const void *acquire, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  al_name(out, AL_SUFFIX_DOOR, ((const al_acquire *)acquire)->resource->name);
}

static bool is_ours(const al_exclusive *own) {
  return own && (own->claim.state == AL_CLAIM_CLAIMING || own->claim.state == AL_CLAIM_HELD);
}

/* A reader that waits to read once more, behind a writer that waits for this reader, would wait for ever. Nobody may
 * enter twice: so a program finds the mistake at once, and not only when there is a writer. */
bool al_rw_may_enter(al_acquire *self) {
  al_session *session = self->op.session;
  const char *name = self->resource->name;
  char key[AL_NAME_SIZE], door[AL_NAME_SIZE];
  if (session->is_shared) return true;
  al_name(key, AL_SUFFIX_READERS, name);
  al_name(door, AL_SUFFIX_DOOR, name);
  if (is_ours(al_exclusive_find(session, door)) || is_ours(al_exclusive_find_bound(session, key)))
    al_op_fail(&self->op, AL_DEADLOCK, AL_RW_DEADLOCK, name);
  return !self->op.done;
}

void al_rw_search_begin(al_acquire *self) {
  al_queue_search *search = &((al_rw_acquire *)self)->search;
  al_rw_door_name(self, 0, search->queue);
  if (al_rw_may_enter(self)) al_queue_search_begin(search, self);
}

al_search_state al_rw_search_poll(al_acquire *self) {
  return al_queue_search_poll(&((al_rw_acquire *)self)->search, self);
}

void al_rw_cancel(al_acquire *self) {
  al_rw_acquire *rw = (al_rw_acquire *)self;
  al_probes_cancel(&rw->search.probes);
  al_probes_cancel(&rw->readers);
  al_barrier_cancel(&rw->barrier);
}

void al_rw_free(al_acquire *self) {
  al_rw_acquire *rw = (al_rw_acquire *)self;
  al_probes_free(&rw->search.probes);
  al_probes_free(&rw->readers);
}

al_exclusive *al_rw_claim_reader(al_op *op, const char *name, const char *door) {
  char ticket[AL_TICKET_SIZE], queue[AL_NAME_SIZE], key[AL_NAME_SIZE], told[AL_NAME_SIZE];
  al_session_ticket(op->session, ticket);
  al_name_reader(queue, name, ticket);
  al_name(key, AL_SUFFIX_READERS, name);
  al_name(told, AL_SUFFIX_DOOR, name);
  return al_exclusive_begin(
      op, &(al_exclusive_plan){.queue = queue, .ticket = ticket, .key = key, .door = door, .wakes = told});
}

/* ---- for the outside -------------------------------------------------------------------------------------------- */

al_rwlock *al_rwlock_new(al_session *session, const char *name, const al_lock_options *options) {
  al_rwlock *rwlock = calloc(1, sizeof *rwlock);
  if (!rwlock) return NULL;
  al_lock_options given = options ? *options : (al_lock_options){0};
  al_resource_init(&rwlock->resource, session, name, given.max_attempts, given.probing);
  if (given.fenced) al_name(rwlock->resource.fence, AL_SUFFIX_RW_FENCE, name);
  al_name(rwlock->resource.bell, AL_SUFFIX_RW_BELL, name);
  return rwlock;
}

void al_rwlock_drop(al_rwlock *rwlock) {
  if (rwlock) al_resource_drop(&rwlock->resource);
}

al_op *al_rwlock_read(al_rwlock *rwlock, const al_acquire_options *options) {
  return al_acquire_begin(&rwlock->resource, &al_rw_reader, sizeof(al_rw_acquire), options);
}

al_op *al_rwlock_write(al_rwlock *rwlock, const al_acquire_options *options) {
  return al_acquire_begin(&rwlock->resource, &al_rw_writer, sizeof(al_rw_acquire), options);
}
