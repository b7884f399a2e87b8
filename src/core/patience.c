/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/patience.h"

#define GRACE (35 * AL_MILLISECOND)
#define CHECK (8 * AL_MILLISECOND) /* longer than a hand-over takes */
#define CHECKS 2
#define FAIR_GRACE (100 * AL_MILLISECOND)
#define DOUBT (20 * AL_MILLISECOND) /* in which a dead client's only queue follows its token */

void al_patience_init(al_patience *patience, const al_acquire_options *options) {
  *patience = (al_patience){.fair = options->fair, .poll = options->poll, .doubted_since = AL_NEVER};
}

static bool is_believed(const al_patience *patience, int64_t now) {
  return patience->doubted_since == AL_NEVER || now < patience->doubted_since + DOUBT;
}

static int64_t grace(const al_patience *patience, bool has_token) {
  int seen = patience->sightings;
  if (patience->fair && !has_token) return seen == 0 ? FAIR_GRACE : 0;
  if (seen == 0 && !has_token) return GRACE;
  return seen < CHECKS + !has_token ? CHECK : 0;
}

int64_t al_patience_leave(al_patience *patience, bool has_token, int64_t now) {
  if (has_token && is_believed(patience, now)) return 0;
  int64_t left = grace(patience, has_token);
  patience->sightings = left > 0 ? patience->sightings + 1 : 0;
  return left;
}

int64_t al_patience_look(al_patience *patience, bool has_token, int64_t now, uint64_t *random) {
  patience->sightings = 0;
  if (!has_token) {
    patience->doubted_since = AL_NEVER;
    return now + al_wait_poll(patience->poll, random);
  }
  if (patience->doubted_since == AL_NEVER) {
    patience->doubted_since = now;
    patience->looks = AL_WAIT_TOKEN;
  }
  if (now >= patience->doubted_since + patience->poll) return AL_NEVER;
  return now + al_wait_next(&patience->looks, random);
}

bool al_patience_is_over(const al_patience *patience, bool has_token) {
  return has_token && patience->doubted_since == AL_NEVER;
}
