/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Patience at the doorbell: how long a caller leaves a free slot to others, and how long a token in hand is believed.
 * Nothing here talks to anybody.
 *
 * A slot found free by somebody without a token may be somebody else's: that one's token is on its way, or it is claiming
 * already. Where a slot is handed on all the time it is free again and again for some milliseconds; so it is taken only
 * after it was seen free for longer than that takes. The same goes for a token that did not lead to a slot at once: most
 * likely it is one too many, and whoever took a slot with it would take somebody else's.
 *
 * A token may arrive before its slot is free, as a dead client's messages go back before its queues go: some milliseconds
 * before, and up to a second where it held hundreds. So looks follow in quick succession, for two seconds, or a poll
 * if that is less; then it is thrown away. Where one was too many more may be: those that follow at once get one look
 * each, begun with the token in hand.
 *
 * Whoever has left free slots to others again and again, and found them taken each time, takes the next one at sight:
 * callers that do not wait would keep it waiting for ever. */
#ifndef AL_CORE_ACQUIRE_PATIENCE_H
#define AL_CORE_ACQUIRE_PATIENCE_H

#include "amqplocks.h"
#include "core/base/backoff.h"

typedef struct al_patience {
  bool fair;
  int64_t poll;
  int sightings;         /* looks in a row that found a slot which was left to others */
  int slighted;          /* how often such a slot was another's at the next look */
  int64_t doubted_since; /* the first look with the token in hand was in vain then; AL_NEVER */
  int64_t wasted_at;     /* the last token was thrown away then */
  al_backoff looks;      /* with the token in hand */
} al_patience;

void al_patience_init(al_patience *patience, const al_acquire_options *options);

/* A free slot was seen, by one with or without a token. How long to leave it to others before another look; 0: it has
 * been left to them long enough. */
int64_t al_patience_leave(al_patience *patience, bool has_token, int64_t now);

/* No free slot was seen, by a look that began with or without a token. When to look again; AL_NEVER: the token in hand is
 * one too many, and is to be thrown away. */
int64_t al_patience_look(al_patience *patience, bool has_token, int64_t now, uint64_t *random);

/* A token has come since the last look: time for another one. */
bool al_patience_is_over(const al_patience *patience, bool has_token);

#endif
