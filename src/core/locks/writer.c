/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Writing: shut the door (rwlock.h), then wait behind it until nobody reads (reader_count.c). */
#include <stdio.h>

#include "core/base/name.h"
#include "core/locks/rwlock.h"
#include "core/session/session.h"

/* ---- words ------------------------------------------------------------------------------------------------------ */

bool al_rw_is_behind_door(const al_acquire *self) {
  return self->own && self->own->claim.state == AL_CLAIM_HELD;
}

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  const char *how = "the broker had not answered yet";
  if (al_rw_is_behind_door(self))
    how = ((const al_rw_acquire *)self)->met_readers
              ? "a reader holds the lock"
              : "this writer keeps new readers out, and counts the readers that still hold the lock";
  else if (self->last.busy)
    how = "another writer holds the lock, or waits for it";
  else if (self->last.found > 0)
    how = NULL;
  if (how)
    snprintf(out, AL_MESSAGE_SIZE, "%s", how);
  else
    al_acquire_describe_free(self, "the write lock", out);
}

static void words(const al_acquire *self, al_code code, char out[AL_ACQUIRE_WORDS]) {
  const char *format = code == AL_TIMEOUT           ? "\"%s\" could not be locked for writing"
                       : code == AL_DEADLOCK        ? AL_RW_DEADLOCK
                       : al_rw_is_behind_door(self) ? "a reader holds \"%s\""
                       : self->view.busy            ? "another writer holds \"%s\", or waits for it"
                                                    : "no writer holds \"%s\", but other waiters come first";
  snprintf(out, AL_ACQUIRE_WORDS, format, self->resource->name);
}

/* ---- the kind --------------------------------------------------------------------------------------------------- */

static al_exclusive *claim(al_acquire *self) {
  if (!al_rw_may_enter(self)) return NULL;
  return al_exclusive_begin(&self->op, &(al_exclusive_plan){.queue = ((al_rw_acquire *)self)->search.queue});
}

const al_acquire_kind al_rw_writer = {.search = al_rw_search_begin,
                                      .poll = al_rw_search_poll,
                                      .cancel = al_rw_cancel,
                                      .free = al_rw_free,
                                      .claim = claim,
                                      .claimed = al_rw_count_readers,
                                      .lock = AL_LOCK_WRITE,
                                      .line = AL_LINE_MADE,
                                      .suspect = al_rw_door_name,
                                      .standing = describe,
                                      .failure_text = words};
