/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/fence_links.h"

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

void al_fence_links_init(al_fence_links *links, const al_link *like) {
  init(&links->fence, like, "fence");
  init(&links->maker, like, "maker");
}

void al_fence_links_free(al_fence_links *links) {
  al_connection_free(&links->fence);
  al_connection_free(&links->maker);
  free(links->fences.ring);
  free(links->permits.ring);
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

int64_t al_fence_links_seen(const al_fence_links *links, const char *fence) {
  const struct al_seen_number *it = find(&links->fences, fence);
  return it ? it->number : 0;
}

void al_fence_links_see(al_fence_links *links, const char *fence, int64_t number) {
  see(&links->fences, fence, number);
}

bool al_fence_links_see_permit(al_fence_links *links, const char *id, int64_t number) {
  return see(&links->permits, id, number) < number;
}

/* ---- the connections --------------------------------------------------------------------------------------------- */

void al_fence_links_set_now(al_fence_links *links, int64_t now) { links->fence.now = links->maker.now = now; }

static int64_t unused_until(const al_fence_links *links) {
  return al_link_is_open(&links->fence) ? links->used_at + UNUSED_MOST : AL_NEVER;
}

void al_fence_links_pump(al_fence_links *links, int64_t now) {
  al_connection_pump(&links->fence, now);
  al_connection_pump(&links->maker, now);
  if (now < unused_until(links)) return;
  al_connection_close(&links->fence, al_deadline_after(now, links->fence.settings->timeout));
}

int64_t al_fence_links_wake(const al_fence_links *links) {
  int64_t either = al_earlier(al_connection_wake(&links->fence), al_connection_wake(&links->maker));
  return al_earlier(either, unused_until(links));
}

void al_fence_links_renew(al_link *link) {
  al_code code = link->code;
  bool lasts =
      code == AL_AUTH || code == AL_VHOST || code == AL_TLS || code == AL_LIMIT || code == AL_CONFLICT;
  if (al_link_is_lost(link) && !lasts) al_link_forget(link);
}
