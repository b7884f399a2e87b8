/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The proof that this client holds a quorum mutex (docs/specification.md, 6.1). The token is the only message of the
 * queue. To hold the mutex is to have the token, and to have proved lately that the queue knows it.
 *
 * The queue counts in the token how often it came back, and how often for a reason that a delivery limit counts:
 * `failures`. Let `silent` be the difference. A client adds one to `failures` when it rejects the token; so does the end
 * of its channel or connection, after which it holds nothing. A client adds one to `silent` when it nacks the token; so
 * does the queue when it moves the token away from a client that it cannot reach, which may not know it. Modulo three:
 *
 *   silent  failures
 *   0       0        at rest: with a holder
 *   0       1 or 2   free: its holder has ended. The next client may hold the mutex at once
 *   1       any      with a client that waits, or with a holder whose channel may end before it learns of that
 *   others           with a client that is on its way to one of these
 *
 * A client that gets the token and finds it not free waits for AL_PROOF_TAKEOVER: its last holder may not know that it is
 * not. So it does where `silent` is 0, not modulo three: the token is new, and there may have been another; unless the
 * queue is new, too.
 *
 * A delivery alone proves nothing: a member of the queue that lags may deliver what another client has by now. So a client
 * rejects the token, and it comes again, with counts that are exactly one step further: then the queue has done this
 * after it was asked. For nothing else leaves `silent` as it is, and lets the client have the token again. (A nack has no
 * such answer: the queue may have moved the token away and back. But a holder that hears of each step within
 * AL_PROOF_CERTAIN may take it for one. That would need two moves within this time.) After that, and after the wait, the
 * client brings the token to rest. A holder gives it back from time to time, by three nacks.
 *
 * What a holder, or a client that waits, does to the token does not make it free, nor does what the queue does by itself:
 * only an end does, of a client that has it at rest. So it does not matter to whom the queue hands a token that was given
 * back. A client that takes a free token rejects it until it is at rest. `failures` goes to 2 and not to 0 then, where it
 * was 1; so one client more may end that got the free token and did nothing to it yet.
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
  int64_t proved_at;         /* the queue has handled a reject that was sent then. 0: none */
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

/* True if a release now would let the next client wait: somebody else may hold the mutex, or the token is under way. */
bool al_proof_is_doubtful(const al_proof *proof, int64_t now);

/* When al_proof_next() may return something else than now, or the mutex is lost. AL_NEVER. */
int64_t al_proof_due(const al_proof *proof);

#endif
