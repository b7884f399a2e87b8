/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The true mutex: one exclusive queue, which exists while somebody holds the mutex, and only then
 * (docs/specification.md, 3). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/locks/gate.h"
#include "core/locks/queue_search.h"

struct al_mutex {
  al_resource resource; /* first */
  char queue[AL_NAME_SIZE];
  const char *what; /* for messages */
};

typedef struct mutex_acquire {
  al_acquire acquire;
  al_queue_search search;
} mutex_acquire;

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void describe(const al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_acquire *self = (const al_acquire *)op;
  if (self->last.found > 0 && !self->last.busy)
    al_acquire_describe_free(self, "it", out);
  else
    snprintf(out, AL_MESSAGE_SIZE, self->last.busy ? "it is held" : "the broker had not answered yet");
}

static void words(const al_acquire *self, al_code code, char out[AL_ACQUIRE_WORDS]) {
  const char *format = code == AL_TIMEOUT    ? "%s \"%s\" did not come free"
                       : code == AL_DEADLOCK ? "%s \"%s\" is already held by this connection"
                       : self->view.busy     ? "%s \"%s\" is held"
                                             : "%s \"%s\" is free, but other waiters come first";
  snprintf(out, AL_ACQUIRE_WORDS, format, ((const al_mutex *)self->resource)->what, self->resource->name);
}

/* ---- the search, and the claim ----------------------------------------------------------------------------------- */

static void mutex_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  memcpy(out, ((const al_mutex *)((const al_acquire *)context)->resource)->queue, AL_NAME_SIZE);
}

static const char *retained(const al_acquire *self) { return ((const al_mutex *)self->resource)->queue; }

static void look(al_acquire *self) {
  al_queue_search *search = &((mutex_acquire *)self)->search;
  mutex_name(self, 0, search->queue);
  al_queue_search_begin(search, self);
}

static al_search_state inspect(al_acquire *self) {
  return al_queue_search_poll(&((mutex_acquire *)self)->search, self);
}

static void cancel(al_acquire *self) { al_probes_cancel(&((mutex_acquire *)self)->search.probes); }

static void search_free(al_acquire *self) { al_probes_free(&((mutex_acquire *)self)->search.probes); }

static al_exclusive *claim(al_acquire *self) {
  al_exclusive_plan plan = {.queue = ((mutex_acquire *)self)->search.queue, .retain = self->resource->retain};
  return al_exclusive_begin(&self->op, &plan);
}

static const al_acquire_kind mutex_kind = {.search = look,
                                           .retained = retained,
                                           .poll = inspect,
                                           .cancel = cancel,
                                           .free = search_free,
                                           .claim = claim,
                                           .lock = AL_LOCK_MUTEX,
                                           .line = AL_LINE_MADE,
                                           .suspect = mutex_name,
                                           .standing = describe,
                                           .failure_text = words};

/* ---- for the outside -------------------------------------------------------------------------------------------- */

al_mutex *al_mutex_new(al_session *session, const char *name, const al_lock_options *options) {
  al_mutex *mutex = calloc(1, sizeof *mutex);
  if (!mutex) return NULL;
  al_lock_options given = options ? *options : (al_lock_options){0};
  al_resource_init(&mutex->resource, session, name, given.max_attempts, given.probing);
  if (given.fenced)
    al_name(mutex->resource.fence, AL_SUFFIX_MUTEX_FENCE, name);
  else
    mutex->resource.retain = given.retain;
  al_name(mutex->queue, AL_SUFFIX_MUTEX, name);
  al_name(mutex->resource.bell, AL_SUFFIX_MUTEX_BELL, name);
  mutex->what = "mutex";
  return mutex;
}

void al_mutex_drop(al_mutex *mutex) {
  if (mutex) al_resource_drop(&mutex->resource);
}

al_op *al_mutex_acquire(al_mutex *mutex, const al_acquire_options *options) {
  return al_acquire_begin(&mutex->resource, &mutex_kind, sizeof(mutex_acquire), options);
}

al_op *al_gate_enter(al_session *session, const char *name, const al_lock_options *options, const char *queue,
                     const char *bell, const al_acquire_options *how) {
  al_mutex *gate = al_mutex_new(session, name, options);
  if (!gate) return NULL;
  snprintf(gate->queue, sizeof gate->queue, "%s", queue);
  snprintf(gate->resource.bell, sizeof gate->resource.bell, "%s", bell);
  gate->what = "the turn to take several of";
  al_op *op = al_mutex_acquire(gate, how);
  al_mutex_drop(gate); /* the operation keeps it */
  return op;
}
