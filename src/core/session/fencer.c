/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/fencer.h"

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
}

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

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t al_fencer_wake(const al_fencer *fencer) {
  int64_t links = least(al_connection_wake(&fencer->fence), al_connection_wake(&fencer->maker));
  return least(links, unused_until(fencer));
}

static void orphan(al_link *link) {
  link->is_orphan = true;
  al_connection_abort(link, AL_CLOSED, "the connection was closed");
}

void al_fencer_orphan(al_fencer *fencer) {
  orphan(&fencer->fence);
  orphan(&fencer->maker);
}
