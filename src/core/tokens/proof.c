/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/proof.h"

#include <string.h>

#include "core/base/backoff.h"

/* The surplus of a token whose client may end without leaving it free. Nor do two more clients make it free that get it
 * then and end at once. */
#define SHIELDED (-3)

/* Each failure counts twice in `returns`. */
static int64_t silent(const al_proof *proof) { return proof->returns - 2 * proof->failures; }

static int64_t surplus(const al_proof *proof) { return proof->failures - silent(proof); }

/* The token was never nacked, so it was never held: a client has published it that found none. Another one may have been
 * lost with its holder. */
static bool is_unmarked(const al_proof *proof) { return silent(proof) == 0; }

static bool is_held(const al_proof *proof) { return proof->certain_until > 0; }

/* The token that was given back has come, and nothing happened to it in between. */
static bool is_answer(const al_proof *proof, const al_content *content) {
  int failed = proof->act == AL_PROOF_REJECTS;
  return proof->act != AL_PROOF_RESTS && content->failures == proof->failures + failed &&
         content->returns == proof->returns + 1 + failed;
}

static bool is_free(const al_proof *proof, int64_t now) {
  return is_unmarked(proof) ? now < proof->new_until : surplus(proof) > 0;
}

static bool is_proved(const al_proof *proof) { return proof->proved_at >= proof->free_at; }

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
    proof->free_at = is_free(proof, now) ? now : now + AL_PROOF_TAKEOVER;
  } else if (proof->proves) {
    proof->proved_at = proof->acted_at;
  }
  if (answers && is_proved(proof) && !is_unmarked(proof) && (was_held || surplus(proof) == 0))
    proof->certain_until = proof->proved_at + AL_PROOF_CERTAIN;
  return answers || !was_held;
}

bool al_proof_is_other(const al_proof *proof, const al_content *content) {
  bool is_older = content->returns <= proof->returns || content->failures < proof->failures;
  return proof->act != AL_PROOF_RESTS && (is_older || strcmp(proof->id, content->message_id) != 0);
}

bool al_proof_has_token(const al_proof *proof, int64_t now) {
  bool is_away = proof->act != AL_PROOF_RESTS && now >= proof->acted_at + AL_PROOF_CERTAIN;
  return proof->has_token && !is_away;
}

al_proof_act al_proof_next(const al_proof *proof, int64_t now, bool shields) {
  if (!proof->has_token || proof->act != AL_PROOF_RESTS) return AL_PROOF_RESTS;
  bool doubts = now < proof->free_at;
  if (!doubts && !is_proved(proof)) return AL_PROOF_REJECTS;
  int64_t at = doubts || (shields && is_held(proof)) ? SHIELDED : 0;
  if (surplus(proof) < at) return AL_PROOF_REJECTS;
  bool is_due = now >= proof->acted_at + AL_PROOF_PULSE;
  return surplus(proof) > at || is_unmarked(proof) || is_due ? AL_PROOF_NACKS : AL_PROOF_RESTS;
}

bool al_proof_is_shielded(const al_proof *proof) { return surplus(proof) <= SHIELDED; }

void al_proof_acts(al_proof *proof, al_proof_act act, int64_t now) {
  proof->act = act;
  proof->acted_at = now;
}

void al_proof_hurry(al_proof *proof) {
  if (proof->act == AL_PROOF_RESTS) proof->acted_at -= AL_PROOF_PULSE;
}

/* The channel's end follows what was sent before. */
bool al_proof_is_settled(const al_proof *proof, int64_t now) {
  int64_t then = surplus(proof) + (proof->act == AL_PROOF_REJECTS) - (proof->act == AL_PROOF_NACKS);
  return proof->has_token && then >= 0 && !is_unmarked(proof) && now >= proof->free_at;
}

bool al_proof_is_doubtful(const al_proof *proof, int64_t now) {
  return al_proof_has_token(proof, now) && !al_proof_is_settled(proof, now);
}

int64_t al_proof_due(const al_proof *proof) {
  if (!proof->has_token) return AL_NEVER;
  int64_t due = is_held(proof) ? proof->certain_until : AL_NEVER;
  if (proof->act != AL_PROOF_RESTS) return due;
  if (!is_proved(proof)) due = al_earlier(due, proof->free_at);
  return al_earlier(due, proof->acted_at + AL_PROOF_PULSE);
}
