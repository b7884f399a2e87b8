/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/pacing.h"

#define GRACE (35 * AL_MILLISECOND)
#define CHECK (8 * AL_MILLISECOND) /* longer than a hand-over takes */
#define CHECKS 2
#define FAIR_GRACE (100 * AL_MILLISECOND)
#define DOUBT (20 * AL_MILLISECOND) /* within this time a dead client's only queue follows its token */
#define BELIEF (2 * AL_SECOND) /* hundreds of queues of a dead client follow their tokens in half of that */
#define PASSED_OVER_MOST 8
#define POLL_MOST (AL_NEVER / 4)       /* some seventy years; can still be added to any time */
#define AT_ONCE (100 * AL_MILLISECOND) /* tokens that lay ready behind a wasted one follow in this time */

void al_pacing_init(al_pacing *pacing, const al_acquire_options *options, bool is_wary) {
  int64_t poll = options->poll < POLL_MOST ? options->poll : POLL_MOST;
  *pacing = (al_pacing){.grace = options->fair ? FAIR_GRACE : GRACE,
                        .poll = poll,
                        .is_wary = is_wary,
                        .doubted_since = AL_NEVER,
                        .wasted_at = -AT_ONCE};
}

static bool is_one_of_many(const al_pacing *pacing, int64_t now) { return now < pacing->wasted_at + AT_ONCE; }

static bool is_believed(const al_pacing *pacing, int64_t now) {
  if (pacing->doubted_since == AL_NEVER) return !is_one_of_many(pacing, now);
  return now < pacing->doubted_since + DOUBT;
}

static int64_t grace(const al_pacing *pacing, bool has_token) {
  int seen = pacing->sightings;
  if (seen == 0 && !has_token) return pacing->grace;
  return seen < CHECKS + !has_token ? CHECK : 0;
}

int64_t al_pacing_leave(al_pacing *pacing, bool has_token, int64_t now) {
  if (has_token && is_believed(pacing, now)) return 0;
  if (pacing->is_wary && now < pacing->doubts_until) return 0;
  if (pacing->passed_over >= PASSED_OVER_MOST) return 0;
  int64_t left = grace(pacing, has_token);
  pacing->sightings = left > 0 ? pacing->sightings + 1 : 0;
  return left;
}

int64_t al_pacing_next_search(al_pacing *pacing, bool has_token, int64_t now, uint64_t *random) {
  int64_t belief = pacing->poll < BELIEF ? pacing->poll : BELIEF;
  pacing->passed_over += pacing->sightings > 0;
  pacing->sightings = 0;
  if (!has_token) {
    pacing->doubted_since = AL_NEVER;
    if (now < pacing->doubts_until) return now + al_backoff_next(&pacing->searches, random);
    return now + al_backoff_recheck(pacing->poll, random);
  }
  if (pacing->doubted_since == AL_NEVER && (pacing->is_wary || is_one_of_many(pacing, now))) {
    if (!pacing->is_wary) pacing->wasted_at = now;
    pacing->doubts_until = now + belief;
    pacing->searches = pacing->is_wary ? AL_BACKOFF_TOKEN : AL_BACKOFF_DOUBT;
    return AL_NEVER;
  }
  if (pacing->doubted_since == AL_NEVER) {
    pacing->doubted_since = now;
    pacing->doubts_until = now; /* this token is the news that was missed */
    pacing->searches = AL_BACKOFF_TOKEN;
  }
  if (now >= pacing->doubted_since + belief) {
    pacing->wasted_at = now;
    return AL_NEVER;
  }
  return now + al_backoff_next(&pacing->searches, random);
}

bool al_pacing_is_over(const al_pacing *pacing, bool has_token) {
  return has_token && pacing->doubted_since == AL_NEVER;
}
