/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The token semaphore as its callers see it: the queue N.semaphore, whose messages are permits. Each message in the
 * queue is a permit, also one that other software has published. An administrator makes the queue (token_admin.c). */
#include <stdio.h>
#include <string.h>

#include "core/base/name.h"
#include "core/hold/gather.h"
#include "core/locks/gate.h"
#include "core/session/claim.h"
#include "core/tokens/taking.h"

struct al_token_semaphore {
  al_takeable from; /* first */
};

static void words(const al_takeable *from, al_code code, char out[AL_MESSAGE_SIZE]) {
  bool names_queue = code != AL_TIMEOUT && code != AL_BUSY && code != AL_NOT_FOUND;
  const char *format = code == AL_TIMEOUT ? "no permit of \"%s\" came free"
                       : code == AL_BUSY  ? "every permit of \"%s\" is taken"
                       : code == AL_NOT_FOUND
                           ? "there is no token semaphore \"%s\"; an administrator creates it "
                             "(amqp-lock-admin create -P, token_semaphore:create)"
                           : "no permit can be taken from \"%s\"";
  snprintf(out, AL_MESSAGE_SIZE, format, names_queue ? from->queue : from->name);
}

static const al_takeable_kind kind = {.lock = AL_LOCK_PERMIT,
                                      .standing = "every permit is taken",
                                      .coming = "a permit has come, and is being confirmed",
                                      .failure_text = words};

/* ---- several permits -------------------------------------------------------------------------------------------- */

static void use(void *from) { ((al_takeable *)from)->refs++; }

static void leave(void *from) { al_takeable_drop(from); }

static bool is_holder(const void *from) {
  const al_takeable *permits = from;
  for (const al_claim *claim = permits->session->claims; claim; claim = claim->next)
    if (claim->state == AL_CLAIM_HELD && strcmp(claim->queue, permits->queue) == 0) return true;
  return false;
}

static al_op *enter_gate(void *from, const al_acquire_options *how) {
  const al_takeable *permits = from;
  char queue[AL_NAME_SIZE], bell[AL_NAME_SIZE];
  al_name(queue, AL_SUFFIX_TOKEN_MANY, permits->name);
  al_name(bell, AL_SUFFIX_TOKEN_MANY_BELL, permits->name);
  return al_gate_enter(permits->session, permits->name, NULL, queue, bell, how);
}

static al_op *take_one(void *from, const al_acquire_options *how) { return al_takeable_acquire(from, how); }

static al_op *count(const void *from) {
  const al_takeable *permits = from;
  return al_token_admin_slots(permits->session, permits->name, NULL);
}

static const al_gather_kind permits_kind = {.unit = "permit",
                                            .use = use,
                                            .leave = leave,
                                            .is_holder = is_holder,
                                            .enter = enter_gate,
                                            .take = take_one,
                                            .count = count};

/* ---- for the outside -------------------------------------------------------------------------------------------- */

al_token_semaphore *al_token_semaphore_new(al_session *session, const char *name,
                                           const al_token_semaphore_options *options) {
  al_token_semaphore *semaphore = al_takeable_new(session, &kind, sizeof *semaphore, name);
  if (!semaphore) return NULL;
  al_takeable *from = &semaphore->from;
  from->is_fenced = options && options->fenced;
  from->source = from->is_fenced || (options && options->quorum) ? AL_FROM_QUORUM : AL_FROM_CLASSIC;
  al_name(from->queue, AL_SUFFIX_PERMITS, name);
  return semaphore;
}

void al_token_semaphore_drop(al_token_semaphore *semaphore) {
  if (semaphore) al_takeable_drop(&semaphore->from);
}

al_op *al_token_semaphore_acquire(al_token_semaphore *semaphore, const al_acquire_options *options) {
  const al_takeable *from = &semaphore->from;
  if (al_gather_is_wanted(options))
    return al_gather_begin(from->session, from->name, &permits_kind, semaphore, options);
  return al_takeable_acquire(&semaphore->from, options);
}
