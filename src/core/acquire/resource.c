/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/resource.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/session/session.h"
#include "core/session/turn.h"

#define SQUAT_EVERY (60 * AL_SECOND) /* least time between two checks for squatters */
#define BELL_EVERY (60 * AL_SECOND)  /* least time until a doorbell that was missing is asked for again */

void al_resource_init(al_resource *resource, al_session *session, const char *name, int max_attempts,
                      al_probing probing) {
  resource->refs = 1;
  resource->session = session;
  resource->max_attempts = max_attempts;
  resource->probing = probing;
  resource->squat_checked = -SQUAT_EVERY;
  al_memory_init(&resource->own);
  resource->memory = &resource->own;
  resource->awaited_at = -BELL_EVERY;
  snprintf(resource->name, sizeof resource->name, "%s", name);
  al_session_ref(session);
}

void al_resource_share_memory(al_resource *resource) {
  AL_TURN(resource->session);
  al_memory *memory = al_memory_of(resource->session, resource->name);
  if (memory) resource->memory = memory;
}

void al_resource_drop(al_resource *resource) {
  if (!resource || al_session_forked(resource->session) || --resource->refs > 0) return;
  al_session *session = resource->session;
  {
    AL_TURN(session);
    if (resource->former) al_claim_leave(&resource->former->claim);
    if (resource->memory != &resource->own) al_memory_leave(resource->memory);
  }
  free(resource);
  al_session_unref(session);
}

static bool is_past(const al_resource *resource, int64_t since, int64_t time) {
  return resource->session->now - since >= time;
}

void al_resource_miss_bell(al_resource *resource) { resource->memory->bell_missed = resource->session->now; }

bool al_resource_may_have_bell(const al_resource *resource) {
  return !resource->has_no_bell && is_past(resource, resource->memory->bell_missed, BELL_EVERY);
}

/* When we waited ourselves, or when a waiter told our last claim, whichever is later. */
static int64_t last_awaited(const al_resource *resource) {
  int64_t own = resource->awaited_at;
  const al_exclusive *former = resource->former;
  bool is_later = former && former->awaited_at != AL_NEVER && former->awaited_at > own;
  return is_later ? former->awaited_at : own;
}

bool al_resource_was_awaited(const al_resource *resource) {
  return !is_past(resource, last_awaited(resource), BELL_EVERY);
}

void al_resource_note_awaited(al_resource *resource) { resource->awaited_at = resource->session->now; }

void al_resource_remember(al_resource *resource, al_exclusive *claim) {
  resource->awaited_at = last_awaited(resource);
  if (resource->former) al_claim_leave(&resource->former->claim);
  al_claim_use(&claim->claim);
  resource->former = claim;
}

bool al_resource_may_be_squatted(const al_resource *resource) {
  return is_past(resource, resource->squat_checked, SQUAT_EVERY);
}

void al_resource_note_squat_check(al_resource *resource, bool is_known) {
  resource->squat_checked = is_known ? resource->session->now : -SQUAT_EVERY;
}
