/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The fast mutex: the queue N-fastmutex, which stays when nobody holds the mutex. Its holder is its active consumer
 * (x-single-active-consumer). Only the broker makes a consumer the active one, and it gives the role to nobody else
 * while the holder consumes. The token, a message, tells the active consumer that it is the one
 * (docs/specification.md, 6). The queue of a quorum mutex is a quorum queue: see proof.h. */
#include <stdio.h>

#include "core/base/name.h"
#include "core/tokens/taking.h"

struct al_fast_mutex {
  al_takeable from; /* first */
};

static void words(const al_takeable *from, al_code code, char out[AL_MESSAGE_SIZE]) {
  const char *format = code == AL_TIMEOUT    ? "fast mutex \"%s\" did not come free"
                       : code == AL_BUSY     ? "fast mutex \"%s\" is held"
                       : code == AL_DEADLOCK ? "fast mutex \"%s\" is already held by this connection"
                                             : "fast mutex \"%s\" cannot be acquired";
  snprintf(out, AL_MESSAGE_SIZE, format, from->name);
}

static const al_takeable_kind kind = {.lock = AL_LOCK_FAST_MUTEX,
                                      .is_mutex = true,
                                      .standing = "it is held",
                                      .coming = "it has come, and is being confirmed",
                                      .failure_text = words};

static al_fast_mutex *make(al_session *session, const char *name, al_source source) {
  al_fast_mutex *mutex = al_takeable_new(session, &kind, sizeof *mutex, name);
  if (!mutex) return NULL;
  mutex->from.source = source;
  al_name(mutex->from.queue, AL_SUFFIX_FAST_MUTEX, name);
  al_name(mutex->from.rival, AL_SUFFIX_MUTEX, name);
  return mutex;
}

al_fast_mutex *al_fast_mutex_new(al_session *session, const char *name) {
  return make(session, name, AL_FROM_FAST_MUTEX);
}

al_fast_mutex *al_quorum_mutex_new(al_session *session, const char *name) {
  return make(session, name, AL_FROM_QUORUM_MUTEX);
}

void al_fast_mutex_drop(al_fast_mutex *mutex) {
  if (mutex) al_takeable_drop(&mutex->from);
}

al_op *al_fast_mutex_acquire(al_fast_mutex *mutex, const al_acquire_options *options) {
  return al_takeable_acquire(&mutex->from, options);
}
