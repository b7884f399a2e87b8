/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The prober: the publishing side of a session, a connection on which nothing is ever held.
 *
 * Every message it publishes is a question: the broker's confirm, and before that the message's return, tell whether its
 * queue exists. Questions are a queue by delivery tag: `first_tag` is the first one's. Confirms come out of order and many at
 * a time. A return carries no delivery tag, so it is matched by the message id, a counter that is never used twice on a
 * connection. (A permit, which has a message id for life, bears the counter in its correlation id.)
 *
 * A channel that answers nothing is given up, with its questions, and so is a connection that the broker does not read
 * (connection.blocked): each asker then decides how it asks elsewhere.
 *
 * Sessions may share a prober. The transport of one of them, its owner, carries it, and it goes down with that session; the
 * others are stepped when it answers. */
#ifndef AL_CORE_SESSION_PROBER_H
#define AL_CORE_SESSION_PROBER_H

#include "amqplocks.h"
#include "core/session/message.h"
#include "core/session/op.h"
#include "core/wire/channel.h"
#include "core/wire/link.h"

typedef enum al_answer {
  AL_ANSWER_PENDING,
  AL_ANSWER_ABSENT,      /* returned, or 404: only this allows a claim, or (by 404) a count to end */
  AL_ANSWER_PRESENT,     /* acknowledged, declared, or 405 */
  AL_ANSWER_UNAVAILABLE, /* it exists, but refuses, is going away, or its node is down */
  AL_ANSWER_DENIED,      /* the broker denies the question: nothing is known */
  AL_ANSWER_UNKNOWN      /* no answer: nothing is known */
} al_answer;

#define AL_NO_PUBLISHERS "the broker reads no publishers (memory or disk alarm)"

/* A question that will not be answered where it was asked. */
typedef struct al_unanswered {
  bool has_time;    /* it may be asked elsewhere: nothing but its place was wrong, and its time is not over */
  bool may_publish; /* also on another channel of the prober */
  int64_t asked_at; /* at first */
  al_answer otherwise; /* the answer, unless it is asked elsewhere */
  const char *text;    /* the reason, in words */
} al_unanswered;

/* An asker is told of each of its questions once, by its index: answered, or given up. */
typedef struct al_asker al_asker;
struct al_asker {
  void (*answered)(al_asker *asker, size_t index, al_answer answer);
  void (*given_up)(al_asker *asker, size_t index, const al_unanswered *how);
};

/* One question on its way. */
typedef struct al_question {
  al_asker *asker; /* NULL: nobody waits for it any more */
  size_t index;
  int64_t asked_at;
  bool returned, settled;
} al_question;

/* It has settings and a seed of its own, as it may outlive its owner. */
struct al_prober {
  int refs;
  al_settings settings;
  uint64_t random;
  al_cluster cluster; /* of its users' holders, too */
  al_link link;
  al_session *owner; /* whose transport carries it; NULL: nobody's any more */
  al_session *users; /* whose operations ask by it, the owner's among them */
  al_channel *channel;
  al_question *questions; /* a ring of `size` */
  size_t start, count, size;
  uint64_t first_tag;
  uint64_t
      first_id; /* message id of the question at `start`; ids and tags rise together, ids never restart */
  bool denied;  /* this user may not publish to the default exchange */
  int silenced; /* how many channels of this connection were given up, as nothing was answered there */
};

/* Owned and used by `owner`. NULL: no memory. */
al_prober *al_prober_new(al_session *owner, uint64_t seed);
void al_prober_use(al_prober *prober, al_session *user);
void al_prober_disown(al_prober *prober,
                      al_session *user); /* steps it no more; if it was the owner, goes down */
void al_prober_leave(al_prober *prober, al_session *user);

/* By its owner: reads, answers, writes. */
void al_prober_pump(al_prober *prober, int64_t now);

/* The link is open. False: no channel is left. */
bool al_prober_is_ready(al_prober *prober);
/* Room for so many questions more. False: no memory. */
bool al_prober_reserve(al_prober *prober, size_t more);
/* Publishes; the prober is ready and has room. `life_id`: see al_message_properties(). `question`: whose, and its index. */
void al_prober_publish(al_prober *prober, al_message message, const char *queue, const char *life_id,
                       al_question question);
/* This asker does not wait for its questions any more. */
void al_prober_forget(al_prober *prober, const al_asker *asker);

/* Publishes a token to a doorbell by the session's prober, and awaits no answer. False: the prober is not open, is blocked,
 * or may not publish. */
bool al_prober_ring(al_session *session, const char *bell);

/* ---- asking by publishing, or passively --------------------------------------------------------------------------- */

/* True if questions asked this way now need the prober's link; otherwise the holder's. */
bool al_probing_publishes(const al_session *session, al_probing probing);
/* al_op_needs() for an operation that claims on the holder and asks for queues. */
bool al_probing_needs(al_op *op, al_probing probing);
/* al_op_has() for the same links. */
bool al_probing_has(al_op *op, al_probing probing);

#endif
