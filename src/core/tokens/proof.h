/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The proof that this client holds a quorum mutex (docs/specification.md, 6.1). The token is a message of the queue,
 * mostly the only one. To hold the mutex is to have the token, and to have proved lately that the queue knows it.
 *
 * The queue counts in the token how often it came back, and how often of these for a reason that a delivery limit
 * counts, a failure. Let `surplus` be the failures less the other returns, and the token be even or odd as these others are.
 *
 *   a client rejects the token, or the channel ends that has it      + 1
 *   a client nacks it, or the queue moves it away from a client
 *   that it cannot reach, and which may not know it                  - 1, and the token turns odd or even
 *
 * A holder brings `surplus` to 0, and the token to even. So the token is free when it is even and `surplus` is above 0:
 * its holder's channel has ended. When the queue has moved it away it is odd, however many clients end then that have done
 * nothing to it. Where it is not free, the last holder may not know that it is not, and the next client waits for
 * AL_PROOF_TAKEOVER. So it does where the token was never nacked, as there may have been another; unless the queue is new,
 * too. While it waits it leaves the token odd: should it end, the next one waits, too.
 *
 * The queue keeps what a consumer has that it was told twice to be out of reach, but gives the role to the next one. It
 * counts both then. While it does, no token is free: the first client may hold the mutex by another token, or give back
 * what the next one gets.
 *
 * A delivery alone proves nothing: a member of the queue that lags may deliver what another client has by now. So a client
 * rejects the token, and it comes again, with counts that are exactly one step further. Then the queue has handled the
 * reject after it was sent, as nothing else gives the client the token again without another count. (A nack has no such
 * answer: the queue may have moved the token away and back.) The mutex is held after this proof, when `surplus` is 0 and
 * the token even. A holder proves it again from time to time, by two nacks and then two rejects: so `surplus` is low when
 * the token is odd.
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
  bool has_token;    /* one has come */
  char id[40];       /* the token's message id, which no other token of this library has */
  int64_t returns, failures; /* the token's, as it came last */
  int64_t free_at;           /* another client may hold the mutex before that */
  bool needs_count;          /* the token came free, and no other consumer was counted yet */
  bool is_alone;             /* so far this consumer was counted, and no other */
  bool came_unmarked;        /* nobody had nacked the token when it came */
  al_proof_act act;          /* by which the token was given back; RESTS: it was not */
  int64_t acted_at;          /* when it was given back last, or came to this client */
  bool proves;               /* the last delivery answers a reject */
  int64_t proved_at;         /* when that was sent. 0: another delivery than an answer came since */
  int64_t certain_until;     /* 0: the mutex is not held */
} al_proof;

/* The token has come. False: the mutex was held, and others had the token meanwhile. */
bool al_proof_read(al_proof *proof, const al_content *content, int64_t now);

/* There may be several tokens, as clients publish one when they see none. A client keeps one and deletes the others:
 * could it get them in turn, it would prove none. Each may have a holder. So it keeps one that may be held rather than one
 * that is free; of two that may be held the one with the lower surplus, and waits anew. Returns true if it keeps this
 * one, and not the one that it has. False, too, for an older delivery of its own. */
bool al_proof_weighs(al_proof *proof, const al_content *content, int64_t now);

/* True if this is a delivery of the token that it has. */
bool al_proof_is_of(const al_proof *proof, const al_content *content);

/* The queue counts so many consumers. 0: it did not answer. */
void al_proof_counted(al_proof *proof, uint32_t consumers, int64_t now);

/* True while the queue is to be asked for that, with each act: the token is free by its own counts, and not held yet. */
bool al_proof_needs_count(const al_proof *proof);

/* False, too, when the token was given back and did not come for so long that it may have gone elsewhere. */
bool al_proof_has_token(const al_proof *proof, int64_t now);

/* Returns in which way the token is to be given back now. `shields`: a holder keeps it odd, and far from free, so that
 * the end of its channel lets the next client wait: the holder may learn late of it. */
al_proof_act al_proof_next(const al_proof *proof, int64_t now, bool shields);

/* True if the next client will wait, should the channel end now. */
bool al_proof_is_shielded(const al_proof *proof);

/* It is given back so. */
void al_proof_acts(al_proof *proof, al_proof_act act, int64_t now);

/* A holder proves it now, and not only when it is time. */
void al_proof_hurry(al_proof *proof);

/* True if a release now lets the next client hold the mutex at once. */
bool al_proof_is_settled(const al_proof *proof, int64_t now);

/* True if the client has the token, and a release now would let the next client wait. */
bool al_proof_is_doubtful(const al_proof *proof, int64_t now);

/* When al_proof_next() may return something else than now, or the mutex is lost. AL_NEVER. */
int64_t al_proof_due(const al_proof *proof);

#endif
