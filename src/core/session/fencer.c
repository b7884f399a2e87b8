/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/fencer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/wire/connection.h"

#define UNUSED_MOST (60 * AL_SECOND)

static void init(al_link *link, const al_link *like, const char *role) {
  al_link_init(link, like->settings, like->cluster, role, like->random);
  link->changed = like->changed;
  link->tell_time = like->tell_time;
  link->watcher = like->watcher;
}

void al_fencer_init(al_fencer *fencer, const al_link *like) {
  init(&fencer->fence, like, "fence");
  init(&fencer->maker, like, "maker");
}

void al_fencer_free(al_fencer *fencer) {
  al_connection_free(&fencer->fence);
  al_connection_free(&fencer->maker);
  free(fencer->fences.ring);
  free(fencer->permits.ring);
}

/* ---- numbers seen ------------------------------------------------------------------------------------------------ */

#define SEEN_MOST 64

struct al_seen_number {
  char of[AL_NAME_SIZE]; /* "": unused */
  int64_t number;
};

static struct al_seen_number *find(const struct al_seen *seen, const char *of) {
  for (int i = 0; seen->ring && i < SEEN_MOST; i++)
    if (strcmp(seen->ring[i].of, of) == 0) return &seen->ring[i];
  return NULL;
}

/* Returns the number seen last; 0: none. */
static int64_t see(struct al_seen *seen, const char *of, int64_t number) {
  struct al_seen_number *it = find(seen, of);
  if (!seen->ring) seen->ring = calloc(SEEN_MOST, sizeof *seen->ring);
  if (!seen->ring) return 0; /* without memory it is not remembered: it only finds what should never be */
  if (!it) {
    it = &seen->ring[seen->next];
    seen->next = (seen->next + 1) % SEEN_MOST;
    snprintf(it->of, sizeof it->of, "%s", of);
    it->number = 0;
  }
  int64_t last = it->number;
  if (number > last) it->number = number;
  return last;
}

int64_t al_fencer_seen(const al_fencer *fencer, const char *fence) {
  const struct al_seen_number *it = find(&fencer->fences, fence);
  return it ? it->number : 0;
}

void al_fencer_see(al_fencer *fencer, const char *fence, int64_t number) {
  see(&fencer->fences, fence, number);
}

bool al_fencer_see_permit(al_fencer *fencer, const char *id, int64_t number) {
  return see(&fencer->permits, id, number) < number;
}

/* ---- the connections --------------------------------------------------------------------------------------------- */

void al_fencer_set_now(al_fencer *fencer, int64_t now) { fencer->fence.now = fencer->maker.now = now; }

static int64_t unused_until(const al_fencer *fencer) {
  return al_link_is_open(&fencer->fence) ? fencer->used_at + UNUSED_MOST : AL_NEVER;
}

void al_fencer_pump(al_fencer *fencer, int64_t now) {
  al_connection_pump(&fencer->fence, now);
  al_connection_pump(&fencer->maker, now);
  if (now < unused_until(fencer)) return;
  al_connection_close(&fencer->fence, al_deadline_after(now, fencer->fence.settings->timeout));
}

int64_t al_fencer_wake(const al_fencer *fencer) {
  int64_t links = al_earlier(al_connection_wake(&fencer->fence), al_connection_wake(&fencer->maker));
  return al_earlier(links, unused_until(fencer));
}

void al_fencer_forget(al_link *link) {
  if (!link->is_orphan) al_link_forget(link);
}

void al_fencer_renew(al_link *link) {
  al_code code = link->code;
  bool lasts =
      code == AL_AUTH || code == AL_VHOST || code == AL_TLS || code == AL_LIMIT || code == AL_CONFLICT;
  if (al_link_is_lost(link) && !link->is_orphan && !lasts) al_link_forget(link);
}

static void orphan(al_link *link) {
  link->is_orphan = true;
  al_connection_abort(link, AL_CLOSED, "the connection was closed");
}

void al_fencer_orphan(al_fencer *fencer) {
  orphan(&fencer->fence);
  orphan(&fencer->maker);
}
