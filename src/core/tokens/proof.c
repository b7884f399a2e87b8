/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/proof.h"

#include <string.h>

/* Each failure counts twice in `returns`. */
static int64_t silent(const al_proof *proof) { return proof->returns - 2 * proof->failures; }

static int64_t steps(const al_proof *proof) { return silent(proof) % 3; }

static int64_t ends(const al_proof *proof) { return proof->failures % 3; }

/* The token was never nacked, so it was never held: a client has published it that found none. Another one may have been
 * lost with its holder. */
static bool is_unmarked(const al_proof *proof) { return silent(proof) == 0; }

static bool is_at_rest(const al_proof *proof) {
  return steps(proof) == 0 && ends(proof) == 0 && !is_unmarked(proof);
}

static bool is_held(const al_proof *proof) { return proof->certain_until > 0; }

/* The token that was given back has come, and nothing happened to it in between. */
static bool is_answer(const al_proof *proof, const al_content *content) {
  int failed = proof->act == AL_PROOF_REJECTS;
  return proof->act != AL_PROOF_RESTS && content->failures == proof->failures + failed &&
         content->returns == proof->returns + 1 + failed;
}

static bool is_free(const al_proof *proof, int64_t now) {
  return is_unmarked(proof) ? now < proof->new_until : steps(proof) == 0 && ends(proof) != 0;
}

/* True if others may hold the mutex, or may have the token by now. */
static bool doubts(const al_proof *proof) { return proof->proved_at < proof->free_at; }

bool al_proof_read(al_proof *proof, const al_content *content, int64_t now) {
  bool answers = is_answer(proof, content), was_held = is_held(proof);
  bool proves = answers && proof->act == AL_PROOF_REJECTS;
  proof->has_token = true;
  proof->act = AL_PROOF_RESTS;
  memcpy(proof->id, content->message_id, sizeof proof->id);
  proof->returns = content->returns;
  proof->failures = content->failures;
  if (!answers) {
    proof->free_at = is_free(proof, now) ? now : now + AL_PROOF_TAKEOVER;
    proof->acted_at = now;
  }
  if (!answers || proves) proof->proved_at = proves ? proof->acted_at : 0;
  if (was_held && answers)
    proof->certain_until = proof->acted_at + AL_PROOF_CERTAIN;
  else if (!doubts(proof) && steps(proof) == 0 && !is_unmarked(proof))
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

static int64_t next_at(const al_proof *proof) {
  int64_t pulse = proof->acted_at + AL_PROOF_PULSE;
  return doubts(proof) && proof->free_at < pulse ? proof->free_at : pulse;
}

al_proof_act al_proof_next(const al_proof *proof, int64_t now, bool shields) {
  if (!proof->has_token || proof->act != AL_PROOF_RESTS) return AL_PROOF_RESTS;
  bool stays = doubts(proof) || (shields && is_held(proof));
  if (ends(proof) != 0 && !(stays && steps(proof) == 1)) return AL_PROOF_REJECTS;
  if (stays ? steps(proof) != 1 : !is_at_rest(proof)) return AL_PROOF_NACKS;
  if (now < next_at(proof)) return AL_PROOF_RESTS;
  return stays ? AL_PROOF_REJECTS : AL_PROOF_NACKS;
}

bool al_proof_is_shielded(const al_proof *proof) { return steps(proof) == 1 && proof->act != AL_PROOF_NACKS; }

void al_proof_acts(al_proof *proof, al_proof_act act, int64_t now) {
  proof->act = act;
  proof->acted_at = now;
}

void al_proof_hurry(al_proof *proof) {
  if (proof->act == AL_PROOF_RESTS) proof->acted_at -= AL_PROOF_PULSE;
}

bool al_proof_is_settled(const al_proof *proof, int64_t now) {
  bool is_here = proof->has_token && proof->act == AL_PROOF_RESTS;
  bool would_be_free = steps(proof) == 0 && ends(proof) != 2 && !is_unmarked(proof);
  return is_here && would_be_free && now >= proof->free_at;
}

bool al_proof_is_doubtful(const al_proof *proof, int64_t now) {
  return al_proof_has_token(proof, now) && !al_proof_is_settled(proof, now);
}

int64_t al_proof_due(const al_proof *proof) {
  if (!proof->has_token) return AL_NEVER;
  int64_t due = is_held(proof) ? proof->certain_until : AL_NEVER;
  return proof->act == AL_PROOF_RESTS && next_at(proof) < due ? next_at(proof) : due;
}
