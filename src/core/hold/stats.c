/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The statistics of a session. What is counted as it happens is in its counts (session.h); the rest is read here. */
#include <string.h>

#include "core/session/claim.h"
#include "core/session/prober.h"
#include "core/session/session.h"
#include "core/session/turn.h"

_Static_assert(AL_CODES == sizeof(((al_stats *)0)->failed) / sizeof(uint64_t) && AL_URL < AL_CODES,
               "each code has a counter");

static uint64_t count_held(const al_session *session) {
  uint64_t held = 0;
  for (const al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->is_counted && claim->state == AL_CLAIM_HELD) held++;
  return held;
}

static uint64_t count_waiting(const al_session *session) {
  uint64_t waiting = 0;
  for (const al_op *op = session->ops; op; op = op->next)
    if (op->is_acquire && !op->done && !op->is_inner && op->waits_since != AL_NEVER) waiting++;
  return waiting;
}

static int64_t silence_of(const al_session *session, const al_link *link) {
  if (!al_link_is_open(link) || link->pulses == 0) return -1;
  int64_t now = session->clock ? session->clock(session) : session->now;
  return now > link->heard_at ? now - link->heard_at : 0;
}

static al_stats read(al_session *session) {
  AL_TURN(session);
  const al_counts *counts = &session->counts;
  const al_prober *prober = session->asks_by;
  int64_t silence = silence_of(session, &session->holder), other = silence_of(session, &session->quorum);
  al_stats all = {.held = count_held(session),
                  .waiting = count_waiting(session),
                  .acquired = counts->acquired,
                  .lost = counts->lost,
                  .revoked = counts->revoked,
                  .contended = counts->contended,
                  .probes = prober->first_id + prober->count,
                  .opened_holder = session->holder.opened,
                  .opened_prober = prober->link.opened,
                  .silence = silence > other ? silence : other,
                  .blocked = prober->link.blocked,
                  .is_up_holder = al_link_is_open(&session->holder),
                  .is_up_prober = al_link_is_open(&prober->link),
                  .is_up_quorum = al_link_is_open(&session->quorum),
                  .opened_quorum = session->quorum.opened,
                  .retained = counts->retained};
  memcpy(all.failed, counts->failed, sizeof all.failed);
  return all;
}

void al_session_stats(al_session *session, al_stats *stats, size_t size) {
  al_stats all = {.silence = -1};
  if (!al_session_forked(session)) all = read(session);
  if (size > sizeof all) memset((char *)stats + sizeof all, 0, size - sizeof all);
  memcpy(stats, &all, size < sizeof all ? size : sizeof all);
}
