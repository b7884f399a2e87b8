/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reading: a reader enters unless the door is shut (rwlock.h). A reader keeps no other reader out, and no writer from
 * shutting the door. So an acquire leaves the lock to nobody, and passes on the bell's token (bell.h) as soon as it
 * is inside.
 *
 * A reader's claim deletes an empty queue of the door's name that is no door. The search finds such a queue first. */
#include <stdio.h>

#include "core/locks/rwlock.h"

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  const char *how = "no writer held the lock at the last search";
  if (self->last.found == 0)
    how = "the broker had not answered yet";
  else if (self->last.busy)
    how = "a writer holds the lock, or waits for it";
  else if (self->race.lost > 0)
    how = "writers take and release the lock again and again";
  else if (self->own)
    how = "no writer holds the lock, and it is being claimed";
  snprintf(out, AL_MESSAGE_SIZE, "%s", how);
}

static void words(const al_acquire *self, al_code code, char out[AL_ACQUIRE_WORDS]) {
  const char *format = code == AL_TIMEOUT    ? "\"%s\" could not be locked for reading"
                       : code == AL_DEADLOCK ? AL_RW_DEADLOCK
                                             : "a writer holds \"%s\", or waits for it";
  snprintf(out, AL_ACQUIRE_WORDS, format, self->resource->name);
}

static al_exclusive *claim(al_acquire *self) {
  if (!al_rw_may_enter(self)) return NULL;
  return al_rw_claim_reader(&self->op, self->resource->name, ((al_rw_acquire *)self)->search.queue);
}

const al_acquire_kind al_rw_reader = {.search = al_rw_search_begin,
                                      .poll = al_rw_search_poll,
                                      .cancel = al_rw_cancel,
                                      .free = al_rw_free,
                                      .claim = claim,
                                      .lock = AL_LOCK_READ,
                                      .line = AL_LINE_SHARED,
                                      .suspect = al_rw_door_name,
                                      .standing = describe,
                                      .failure_text = words};
