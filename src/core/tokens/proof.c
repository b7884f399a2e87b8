/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/proof.h"

#include <string.h>

#include "core/base/backoff.h"

/* How often the token came back, and how often of these by a failure. Each failure counts twice in `returns`. */
typedef struct counts {
  int64_t returns, failures;
} counts;

static int64_t silent(counts of) { return of.returns - 2 * of.failures; }

static int64_t surplus_of(counts of) { return of.failures - silent(of); }

static bool is_even(counts of) { return silent(of) % 2 == 0; }

/* A holder that shields its token brings the surplus to this, by one with each proof: the queue may move it then, and
 * eight clients end, and it is not free. */
#define SHIELDED (-7)

/* A token that was never nacked was never held: a client has published it that found none. Another one may have been
 * lost with its holder. */
typedef enum standing { NEVER_HELD, FREE, PERHAPS_HELD } standing;

static standing standing_of(counts of) {
  return silent(of) == 0 ? NEVER_HELD : surplus_of(of) > 0 && is_even(of) ? FREE : PERHAPS_HELD;
}

static counts counts_now(const al_proof *proof) { return (counts){proof->returns, proof->failures}; }

static counts counts_of(const al_content *content) { return (counts){content->returns, content->failures}; }

/* When the queue has handled what was sent. */
static counts counts_after_act(const al_proof *proof) {
  int back = proof->act != AL_PROOF_RESTS, failed = proof->act == AL_PROOF_REJECTS;
  return (counts){proof->returns + back + failed, proof->failures + failed};
}

static int64_t surplus(const al_proof *proof) { return surplus_of(counts_now(proof)); }

static bool is_unmarked(const al_proof *proof) { return standing_of(counts_now(proof)) == NEVER_HELD; }

static bool is_held(const al_proof *proof) { return proof->certain_until > 0; }

bool al_proof_is_of(const al_proof *proof, const al_content *content) {
  return strcmp(proof->id, content->message_id) == 0;
}

/* The token that was given back has come, and nothing happened to it in between. */
static bool is_answer(const al_proof *proof, const al_content *content) {
  counts expected = counts_after_act(proof);
  return proof->act != AL_PROOF_RESTS && al_proof_is_of(proof, content) &&
         content->returns == expected.returns && content->failures == expected.failures;
}

static bool is_believed_free(const al_proof *proof, int64_t now) {
  return is_unmarked(proof) ? now < proof->new_until : standing_of(counts_now(proof)) == FREE;
}

static bool is_proved(const al_proof *proof) {
  bool is_alone = !proof->needs_count || proof->is_alone;
  return is_alone && !is_unmarked(proof) && proof->proved_at >= proof->free_at;
}

bool al_proof_read(al_proof *proof, const al_content *content, int64_t now) {
  bool answers = is_answer(proof, content), was_held = is_held(proof);
  proof->proves = answers && proof->act == AL_PROOF_REJECTS;
  proof->has_token = true;
  proof->act = AL_PROOF_RESTS;
  memcpy(proof->id, content->message_id, sizeof proof->id);
  proof->returns = content->returns;
  proof->failures = content->failures;
  if (!answers) {
    proof->acted_at = now;
    proof->proved_at = 0;
    proof->came_unmarked = is_unmarked(proof);
    proof->needs_count = is_believed_free(proof, now) && now >= proof->free_at;
    proof->is_alone = false;
    proof->free_at = proof->needs_count ? now : now + AL_PROOF_TAKEOVER;
  } else if (proof->proves) {
    proof->proved_at = proof->acted_at;
  }
  bool may_end = surplus(proof) == 0 && is_even(counts_now(proof));
  if (answers && is_proved(proof) && (was_held || may_end))
    proof->certain_until = proof->proved_at + AL_PROOF_CERTAIN;
  return answers || !was_held;
}

bool al_proof_weighs(al_proof *proof, const al_content *content, int64_t now) {
  if (!al_proof_has_token(proof, now)) return true;
  if (al_proof_is_of(proof, content)) {
    bool is_older = content->returns <= proof->returns || content->failures < proof->failures;
    return proof->act == AL_PROOF_RESTS || !is_older;
  }
  if (is_held(proof)) return false;
  counts after = counts_after_act(proof), others = counts_of(content);
  standing own = proof->came_unmarked ? NEVER_HELD : standing_of(after), its = standing_of(others);
  if (own == PERHAPS_HELD && its == PERHAPS_HELD) {
    proof->free_at = now + AL_PROOF_TAKEOVER;
    return surplus_of(others) < surplus_of(after);
  }
  if (its > own) proof->free_at = 0; /* nobody holds by its own */
  return its > own;
}

void al_proof_counted(al_proof *proof, uint32_t consumers, int64_t now) {
  if (!proof->needs_count || is_held(proof)) return;
  proof->is_alone |= consumers == 1;
  if (consumers <= 1) return;
  proof->needs_count = false;
  proof->free_at = now + AL_PROOF_TAKEOVER;
}

bool al_proof_needs_count(const al_proof *proof) {
  return proof->has_token && proof->needs_count && !is_held(proof);
}

bool al_proof_has_token(const al_proof *proof, int64_t now) {
  bool is_away = proof->act != AL_PROOF_RESTS && now >= proof->acted_at + AL_PROOF_CERTAIN;
  return proof->has_token && !is_away;
}

al_proof_act al_proof_next(const al_proof *proof, int64_t now, bool shields) {
  if (!proof->has_token || proof->act != AL_PROOF_RESTS) return AL_PROOF_RESTS;
  bool even = is_even(counts_now(proof)), is_due = now >= proof->acted_at + AL_PROOF_PULSE;
  if (now < proof->free_at) return even ? AL_PROOF_NACKS : AL_PROOF_RESTS;
  if (proof->proved_at < proof->free_at) return AL_PROOF_REJECTS;
  bool keeps_odd = shields && is_held(proof);
  if (even == keeps_odd) return AL_PROOF_NACKS;
  int64_t least = !keeps_odd ? 0 : proof->proves ? SHIELDED : -1;
  if (surplus(proof) < least) return AL_PROOF_REJECTS;
  return is_due || (surplus(proof) > 0 && !keeps_odd) ? AL_PROOF_NACKS : AL_PROOF_RESTS;
}

bool al_proof_is_shielded(const al_proof *proof) { return !is_even(counts_now(proof)); }

void al_proof_acts(al_proof *proof, al_proof_act act, int64_t now) {
  proof->act = act;
  proof->acted_at = now;
}

void al_proof_hurry(al_proof *proof) {
  if (proof->act == AL_PROOF_RESTS) proof->acted_at -= AL_PROOF_PULSE;
}

/* The channel's end follows what was sent before. */
bool al_proof_is_settled(const al_proof *proof, int64_t now) {
  counts after = counts_after_act(proof), ended = {after.returns + 2, after.failures + 1};
  return standing_of(ended) == FREE && now >= proof->free_at;
}

bool al_proof_is_doubtful(const al_proof *proof, int64_t now) {
  return al_proof_has_token(proof, now) && !al_proof_is_settled(proof, now);
}

int64_t al_proof_due(const al_proof *proof) {
  if (!proof->has_token) return AL_NEVER;
  int64_t due = is_held(proof) ? proof->certain_until : AL_NEVER;
  if (proof->act != AL_PROOF_RESTS) return due;
  if (proof->proved_at < proof->free_at) return al_earlier(due, proof->free_at);
  return al_earlier(due, proof->acted_at + AL_PROOF_PULSE);
}
