/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The token semaphore as its callers see it: the queue N.semaphore, whose messages are permits. Each message in the
 * queue is a permit, also one that other software has published. An administrator makes the queue (token_admin.c). */
#include <stdio.h>

#include "core/base/name.h"
#include "core/tokens/taking.h"

struct al_token_semaphore {
  al_takeable from; /* first */
};

static void words(const al_takeable *from, al_code code, char out[AL_MESSAGE_SIZE]) {
  bool names_queue = code != AL_TIMEOUT && code != AL_BUSY && code != AL_NOT_FOUND;
  const char *format = code == AL_TIMEOUT ? "no permit of \"%s\" came free"
                       : code == AL_BUSY  ? "every permit of \"%s\" is taken"
                       : code == AL_NOT_FOUND
                           ? "there is no token semaphore \"%s\"; an administrator creates it"
                           : "no permit can be taken from \"%s\"";
  snprintf(out, AL_MESSAGE_SIZE, format, names_queue ? from->queue : from->name);
}

static const al_takeable_kind kind = {.lock = AL_LOCK_PERMIT,
                                      .standing = "every permit is taken",
                                      .coming = "a permit has come, and is being confirmed",
                                      .failure_text = words};

al_token_semaphore *al_token_semaphore_new(al_session *session, const char *name,
                                           const al_token_semaphore_options *options) {
  al_token_semaphore *semaphore = al_takeable_new(session, &kind, sizeof *semaphore, name);
  if (!semaphore) return NULL;
  al_takeable *from = &semaphore->from;
  from->is_fenced = options && options->fenced;
  from->source = from->is_fenced || (options && options->quorum) ? AL_FROM_QUORUM : AL_FROM_CLASSIC;
  al_name_permits(from->queue, name);
  return semaphore;
}

void al_token_semaphore_drop(al_token_semaphore *semaphore) {
  if (semaphore) al_takeable_drop(&semaphore->from);
}

al_op *al_token_semaphore_acquire(al_token_semaphore *semaphore, const al_acquire_options *options) {
  return al_takeable_acquire(&semaphore->from, options);
}
