/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The proof that this client holds a quorum mutex (docs/specification.md, 6.1). The token is the only message of the
 * queue. To hold the mutex is to have the token, and to have proved lately that the queue knows it.
 *
 * The queue counts in the token how often it came back, and how often for a reason that a delivery limit counts. Let
 * `silent` be the difference. It does not change when a client rejects the token, and when a channel or connection
 * ends, for which its client holds nothing any more. It grows by one when a client nacks the token, and when the
 * queue moves it away from a client that it cannot reach, which may not know it.
 *
 *   0                    the token is new. There may have been another: as another number, unless the queue is new
 *   a multiple of three  the token came from a client that holds nothing. The next client may hold the mutex at once
 *   another number       its last holder may not know that it is not. The next client waits for AL_PROOF_TAKEOVER first
 *
 * A delivery alone proves nothing: a member of the queue that lags may deliver what another client has by now. So the
 * token is given back, and comes again, with counts that are exactly one step further: then the queue has done this
 * after it was asked, and nobody else had the token meanwhile. The first time it is given back by a reject, which
 * leaves `silent` as it is; or, after a wait, by nacks until `silent` is a multiple of three. A holder gives it back
 * three times, from time to time, by nacks: a client that gets the token instead finds another number. Two would not do:
 * where a holder's nacks arrive and the deliveries to it do not, it has nacked once, and the queue that moves the token
 * away adds one.
 *
 * Nothing here sends. */
#ifndef AL_CORE_TOKENS_PROOF_H
#define AL_CORE_TOKENS_PROOF_H

#include "core/wire/channel.h"

/* The mutex is certain to be held for so long since the token was given back for a proof. The queue moves the token away
 * from an unreachable client after AL_MUTEX_DISCONNECTED_TIMEOUT, and RabbitMQ 4.3 sooner after two faults in a row. The
 * three times differ because clocks run at unequal rates. */
#define AL_PROOF_CERTAIN (14500 * AL_MILLISECOND)
#define AL_PROOF_TAKEOVER (15250 * AL_MILLISECOND)
#define AL_PROOF_PULSE (2500 * AL_MILLISECOND) /* between the proofs of a holder */

typedef enum al_proof_act { AL_PROOF_RESTS, AL_PROOF_NACKS, AL_PROOF_REJECTS } al_proof_act;

typedef struct al_proof {
  int64_t new_until; /* the queue is new until then: a token that was never nacked had no holder before */
  bool has_token;    /* as far as this client knows */
  char id[40];       /* the token's message id; other tokens may have the same */
  int64_t returns, failures; /* the token's, as it came last */
  int64_t free_at;           /* another client may hold the mutex before that */
  al_proof_act act;          /* by which the token was given back; RESTS: it was not */
  int64_t acted_at;          /* when it was given back last, or came to this client */
  int64_t certain_until;     /* 0: the mutex is not held */
} al_proof;

/* The token has come. False: the mutex was held, and others had the token meanwhile. */
bool al_proof_read(al_proof *proof, const al_content *content, int64_t now);

/* True if this is certainly not the token that was given back and is awaited. There may be several, as two clients may
 * have found none: the client deletes this one. Otherwise it could get them in turn, and prove none. */
bool al_proof_is_other(const al_proof *proof, const al_content *content);

/* False, too, when the token was given back and did not come for so long that it may have gone elsewhere. */
bool al_proof_has_token(const al_proof *proof, int64_t now);

/* Returns in which way the token is to be given back now. `shields`: a holder keeps `silent` one
 * more than a multiple of three, so that the end of its channel lets the next client wait: it may learn late of it. */
al_proof_act al_proof_next(const al_proof *proof, int64_t now, bool shields);

/* True if the next client that gets the token will wait. */
bool al_proof_is_shielded(const al_proof *proof);

/* It is given back so. */
void al_proof_acts(al_proof *proof, al_proof_act act, int64_t now);

/* A holder proves it now, and not only when it is time. */
void al_proof_hurry(al_proof *proof);

/* True if the token is here and nobody else may hold the mutex: a release now lets the next client hold it at once. */
bool al_proof_is_settled(const al_proof *proof, int64_t now);

/* True if the token is here and somebody else may hold the mutex: a release now lets the next client wait anew. */
bool al_proof_is_doubtful(const al_proof *proof, int64_t now);

/* When al_proof_next() may return something else than now, or the mutex is lost. AL_NEVER. */
int64_t al_proof_due(const al_proof *proof);

#endif
