/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Patience at the doorbell, the queue whose messages, the tokens, wake waiters (bell.h): how long a waiter leaves a
 * free slot to others, and how long it believes a token in hand. This file only decides; it sends nothing.
 *
 * This is asked where an acquire has to leave a free slot to others at all: by a waiter, and by a caller that is fair
 * (found_free in acquire.c). Other callers claim what is free.
 *
 * A slot that is found free without a token in hand may be meant for another waiter, whose token is on its way or who
 * is claiming already. A slot that is handed on all the time is free again and again for some milliseconds. So without
 * a token a slot is taken only after it was seen free for longer than a hand-over takes. The same goes for a token
 * that did not lead to a slot at once: most likely it is one too many, and a slot taken with it would be another
 * waiter's.
 *
 * A token may arrive before its slot is free, as a dead client's messages go back before its queues go: some
 * milliseconds before, and up to a second if the client held hundreds of queues. So a waiter with a token searches in
 * quick succession for two seconds, or for the time of the option `poll` if that is less. Then the token is thrown
 * away. If one token was too many, more may be: a token that arrives within 100 ms of that is believed for one search
 * only, the first that begins with this token in hand. If that search finds nothing, this token is thrown away, too.
 * It may all the same have been a dead client's token. So the waiter then goes on searching without a token, less and
 * less often, for as long as it believes a token.
 *
 * A session that retains a mutex gives the token back at once, and rings when it gives up the mutex, which it does because
 * a waiter asks. A waiter that kept a token would not hear of that. So in line for such a mutex a token is thrown away after
 * one search, and the waiter goes on as if it had it: it may be a dead holder's.
 *
 * A waiter that has left free slots to others, and found them taken afterwards, eight times in all, claims every later
 * one at once: callers that do not wait would otherwise keep it waiting for ever. */
#ifndef AL_CORE_ACQUIRE_PACING_H
#define AL_CORE_ACQUIRE_PACING_H

#include "amqplocks.h"
#include "core/base/backoff.h"

typedef struct al_pacing {
  int64_t grace; /* for so long a free slot is left to others at first: longer with the option `fair` */
  int64_t poll;
  bool is_wary;
  int sightings;         /* searches in a row that found a slot which was left to others */
  int passed_over;       /* how often the next search found such a slot taken */
  int64_t doubted_since; /* when a search with the token in hand first found nothing; AL_NEVER */
  int64_t wasted_at;     /* when the last token was thrown away */
  int64_t doubts_until; /* a token was thrown away after one search: until then, searches go on without one */
  al_backoff searches;  /* between searches with the token in hand, or after it */
} al_pacing;

/* `is_wary`: of a mutex that may be retained. */
void al_pacing_init(al_pacing *pacing, const al_acquire_options *options, bool is_wary);

/* A search found a free slot. Returns how long to leave it to others before the next search; 0: it was left to them
 * long enough. `has_token`: the caller has a token. */
int64_t al_pacing_leave(al_pacing *pacing, bool has_token, int64_t now);

/* A search found no free slot. Returns when to search again; AL_NEVER: throw the token away, as it is one too many.
 * `has_token`: the search began with a token in hand. */
int64_t al_pacing_next_search(al_pacing *pacing, bool has_token, int64_t now, uint64_t *random);

/* True if a token has come since the last search: search again. */
bool al_pacing_is_over(const al_pacing *pacing, bool has_token);

#endif
