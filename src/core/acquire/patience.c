/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/patience.h"

#define GRACE (35 * AL_MILLISECOND)
#define CHECK (8 * AL_MILLISECOND) /* longer than a hand-over takes */
#define CHECKS 2
#define FAIR_GRACE (100 * AL_MILLISECOND)
#define DOUBT (20 * AL_MILLISECOND) /* within this time a dead client's only queue follows its token */
#define BELIEF (2 * AL_SECOND) /* hundreds of queues of a dead client follow their tokens in half of that */
#define SLIGHTED_MOST 8
#define POLL_MOST (AL_NEVER / 4)       /* some seventy years; can still be added to any time */
#define AT_ONCE (100 * AL_MILLISECOND) /* tokens that lay ready behind a wasted one follow in this time */

void al_patience_init(al_patience *patience, const al_acquire_options *options) {
  int64_t poll = options->poll < POLL_MOST ? options->poll : POLL_MOST;
  *patience =
      (al_patience){.fair = options->fair, .poll = poll, .doubted_since = AL_NEVER, .wasted_at = -AT_ONCE};
}

static bool is_one_of_many(const al_patience *patience, int64_t now) {
  return now < patience->wasted_at + AT_ONCE;
}

static bool is_believed(const al_patience *patience, int64_t now) {
  if (patience->doubted_since == AL_NEVER) return !is_one_of_many(patience, now);
  return now < patience->doubted_since + DOUBT;
}

static int64_t grace(const al_patience *patience, bool has_token) {
  int seen = patience->sightings;
  if (seen == 0 && !has_token) return patience->fair ? FAIR_GRACE : GRACE;
  return seen < CHECKS + !has_token ? CHECK : 0;
}

int64_t al_patience_leave(al_patience *patience, bool has_token, int64_t now) {
  if (has_token && is_believed(patience, now)) return 0;
  if (patience->slighted >= SLIGHTED_MOST) return 0;
  int64_t left = grace(patience, has_token);
  patience->sightings = left > 0 ? patience->sightings + 1 : 0;
  return left;
}

int64_t al_patience_next_search(al_patience *patience, bool has_token, int64_t now, uint64_t *random) {
  int64_t belief = patience->poll < BELIEF ? patience->poll : BELIEF;
  patience->slighted += patience->sightings > 0;
  patience->sightings = 0;
  if (!has_token) {
    patience->doubted_since = AL_NEVER;
    if (now < patience->doubts_until) return now + al_backoff_next(&patience->searches, random);
    return now + al_backoff_recheck(patience->poll, random);
  }
  if (patience->doubted_since == AL_NEVER && is_one_of_many(patience, now)) {
    patience->wasted_at = now;
    patience->doubts_until = now + belief;
    patience->searches = AL_BACKOFF_DOUBT;
    return AL_NEVER;
  }
  if (patience->doubted_since == AL_NEVER) {
    patience->doubted_since = now;
    patience->doubts_until = now; /* this token is the news that was missed */
    patience->searches = AL_BACKOFF_TOKEN;
  }
  if (now >= patience->doubted_since + belief) {
    patience->wasted_at = now;
    return AL_NEVER;
  }
  return now + al_backoff_next(&patience->searches, random);
}

bool al_patience_is_over(const al_patience *patience, bool has_token) {
  return has_token && patience->doubted_since == AL_NEVER;
}
