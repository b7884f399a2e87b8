/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The claim on one permit (docs/specification.md, 5): a message, any message, of the queue N.semaphore, which the
 * holder consumes and never acknowledges. When the process of the holder dies, or its channel or connection ends, the
 * broker gives the permit to the next consumer.
 *
 * A fast mutex is claimed in the same way, from its queue N-fastmutex, whose message is called the token
 * (docs/specification.md, 6). Whichever client comes first declares the queue, and so makes it. A queue of another shape
 * may exclude nobody. So the mutex is held when the queue has been declared by this claim; or by an earlier one, and the
 * token that comes is one that came then. A message does not leave its queue, so the queue is the same.
 *
 * The consumer stays registered while the permit is held. The broker notifies only registered consumers when the
 * queue is deleted or goes down with its node, and after that another client may get the same permit. (So
 * basic.get is no substitute.) The permit is lost then. It is lost too when the broker closes the channel, as it
 * does if a client keeps a message for longer than the consumer timeout. (`moves` in permit.c has the states.)
 *
 * A release is cancel and nack. At a quorum queue that has lost its majority, basic.cancel and basic.consume end the
 * connection after some time (541, RabbitMQ 3.10 and 4.3). So quorum permits have a connection of their own (session.h).
 * Closing the channel would not end it, but a quorum queue of other software may drop a message that came back so too
 * often.
 *
 * The fencing token of a permit. A permit that this library made has an id for life, and a base. A quorum queue tells
 * with each delivery how often the message was delivered before. Base and count make a number that grows from one
 * holder of this permit to the next. No frame is sent for it. The message may be on its way to a client that is
 * stopped; when that client reads it, it must ask whether it still holds the permit, before it uses the number
 * (al_claim_ascertain_for()). A permit that was published again has no number, where that can be told: by its headers,
 * or because this session has seen a number that is not smaller.
 *
 * The release of a classic queue's permit does not wait for the broker, except by al_claim_undo. The broker reads it
 * before whatever is written next. If the connection is lost before that, the effect is the same. That of a quorum
 * queue's permit does: otherwise another client's first look behind it mostly finds the permit taken. */
#ifndef AL_CORE_TOKENS_PERMIT_H
#define AL_CORE_TOKENS_PERMIT_H

#include "core/queue/consumer.h"
#include "core/session/check.h"
#include "core/session/claim.h"
#include "core/tokens/proof.h"

/* What the permit is taken from. */
typedef enum al_source {
  AL_FROM_CLASSIC,     /* a token semaphore whose queue is a classic queue */
  AL_FROM_QUORUM,      /* a token semaphore whose queue is a quorum queue */
  AL_FROM_FAST_MUTEX,  /* the queue of a fast mutex */
  AL_FROM_QUORUM_MUTEX /* the same, a quorum queue: claimed when it is proved (proof.h) */
} al_source;

typedef struct al_permit {
  al_claim claim; /* first */
  al_consumer consumer;
  al_source source;
  int64_t number;          /* HELD: its fencing token; 0: it has none */
  char id[AL_TICKET_SIZE]; /* of the permit that has this number; "" */
  bool is_none;            /* CLAIMING: no permit lay ready when al_permit_ask() was answered */
  al_check check;          /* asks whether the queue exists */
  bool is_deciding;        /* al_permit_ask() waits for the answer on `check` */
  bool cannot_ask;         /* the broker denies that question */
  char token[40];      /* a fast mutex: the known token, and then the one that has come; "": it has no id */
  bool is_known;       /* a fast mutex: the known token has come */
  bool is_declaring;   /* a fast mutex: its declare is not answered */
  int64_t declared_at; /* a fast mutex: when its declare was answered; 0 */
  bool was_deserted;   /* a fast mutex: its queue had no token, and no consumer but this one */
  al_proof proof;      /* of a quorum mutex */
  bool is_disproved;   /* others had the token meanwhile */
  int64_t ready_since; /* CLAIMING: al_permit_look has seen a token ready since then; 0: not the last time */
  bool is_answered;    /* CLAIMING: the queue has answered the last look */
  int proves;          /* so many questions (al_claim_confirm) the next proof answers */
  bool is_hazard;      /* it is counted in its link's hazards */
} al_permit;

/* The link on which permits from such a queue are held. */
al_link *al_permit_link(al_session *session, al_source source);

/* Begins a claim for `op`, which watches the claim from now on and is its first user. Its link must be open.
 * `known`: a token from a queue that was declared; "": there is none, and the queue is declared first. `new_until`: see
 * al_proof. A quorum mutex has no priorities: a consumer of a higher one would take the role from the holder. NULL: no
 * channel or no memory, and the operation has failed. */
al_permit *al_permit_begin(al_op *op, const char *queue, int priority, al_source source, const char *known,
                           int64_t new_until);

/* While a quorum queue has no majority, the broker ends the connection of a client that consumes from it (541). It ends
 * the other channels first, and then tells the client. So each quorum mutex that is held on this connection is shielded
 * before (proof.h), and until the queue has answered. al_permits_shield() begins that for one request, and returns true
 * when all are; al_permits_expose() ends it. */
bool al_permits_shield(al_session *session, bool *is_hazard);
void al_permits_expose(al_session *session, bool *is_hazard);

/* True if consume-ok has arrived, and no message yet. */
bool al_permit_waits(const al_permit *permit);

/* True if the token of a quorum mutex has come, and it is not held yet. */
bool al_permit_is_proving(const al_permit *permit);

/* The same, and another client may hold the mutex, which does not know that it has lost the token. */
bool al_permit_is_doubted(const al_permit *permit);

/* While al_permit_waits(): asks whether a permit lies ready; see al_consumer_ask(). A quorum queue sends consume-ok
 * before it has delivered its ready messages. With `checks_first`, a passive declare goes to the queue before: the
 * queue nearly always answers it after those deliveries. To a fast mutex goes its declare, whose answer tells whether it
 * is deserted. */
void al_permit_ask(al_permit *permit, bool checks_first);

/* A waiter of a quorum mutex asks how its queue does. If the queue may not serve this consumer any more, the claim is lost. */
void al_permit_look(al_permit *permit);

/* The base and count of this delivery of a permit; 0: it has none. It has none if the message is not of this library,
 * or if its queue does not count: it was delivered before, and no count says so. */
int64_t al_permit_reading(const al_content *content);

#endif
