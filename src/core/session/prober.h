/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The prober is the publishing side of a session: a connection on which no lock is ever held.
 *
 * Every message that the prober publishes is a question: the message's return and the broker's confirm tell whether
 * its queue exists (probe.h). Questions are kept in the order of their delivery tags; `first_tag` is the tag of the
 * first. Confirms come out of order and many at a time. A return carries no delivery tag, so it is matched by the
 * message id: a counter that is never used twice on a connection. (A permit has a message id for life. It has the
 * counter in its correlation id.)
 *
 * When a channel gives no answers, the prober gives it up, with its questions. When the broker does not read the
 * connection (connection.blocked), the prober gives up its questions. Each asker then decides how to ask elsewhere.
 *
 * The connections for fencing tokens (fence_links.h) belong to it. */
#ifndef AL_CORE_SESSION_PROBER_H
#define AL_CORE_SESSION_PROBER_H

#include "amqplocks.h"
#include "core/session/fence_links.h"
#include "core/session/message.h"
#include "core/session/op.h"
#include "core/wire/channel.h"
#include "core/wire/link.h"

typedef enum al_answer {
  AL_ANSWER_PENDING,
  AL_ANSWER_ABSENT, /* returned, or 404. Only this answer allows a claim, or (by 404) ends a count of slots */
  AL_ANSWER_PRESENT,     /* acknowledged, declare-ok, or 405 */
  AL_ANSWER_UNAVAILABLE, /* the queue exists, but it refuses, is going away, or its node is down */
  AL_ANSWER_DENIED,      /* the user may not ask: nothing is known of the queue */
  AL_ANSWER_UNKNOWN      /* no answer came: nothing is known of the queue */
} al_answer;

#define AL_NO_PUBLISHERS "the broker reads no publishers (memory or disk alarm)"

/* Describes a question that was given up: it will not be answered where it was asked. */
typedef struct al_unanswered {
  bool has_time;       /* it may be asked elsewhere, and its time is not over */
  bool may_publish;    /* it may also be asked on another channel of the prober */
  int64_t asked_at;    /* when it was first asked */
  al_answer otherwise; /* its answer if it is not asked elsewhere */
  const char *text;    /* the reason, for people */
} al_unanswered;

/* An asker is notified of each of its questions once, by its index: it was answered, or given up. */
typedef struct al_asker al_asker;
struct al_asker {
  void (*answered)(al_asker *asker, size_t index, al_answer answer);
  void (*given_up)(al_asker *asker, size_t index, const al_unanswered *how);
};

/* A question under way. */
typedef struct al_question {
  al_asker *asker; /* NULL: no asker waits for it any more */
  size_t index;
  int64_t asked_at;
  bool returned, settled;
} al_question;

struct al_prober {
  uint64_t random;
  al_cluster cluster; /* also used by the holder */
  al_link link;
  al_fence_links fence_links;
  al_session *session;
  al_channel *channel;
  al_question *questions; /* a ring of `size` */
  size_t start, count, size;
  uint64_t first_tag;
  uint64_t
      first_id; /* message id of the question at `start`; ids and tags rise together, ids never restart */
  bool denied;  /* this user may not publish to the default exchange */
  int silenced; /* how many channels of this connection were given up because nothing was answered there */
};

/* Makes the session's prober. Returns false if there is no memory. */
bool al_prober_new(al_session *session, uint64_t seed);
void al_prober_free(al_prober *prober);

/* Reads, passes answers on, writes; the fence links' connections, too. */
void al_prober_pump(al_prober *prober, int64_t now);
/* Returns when to pump next although nothing has arrived. */
int64_t al_prober_wake(const al_prober *prober);

/* Takes the channel for publishing, if there is none yet. The link must be open. Returns false if no channel is
 * left. */
bool al_prober_is_ready(al_prober *prober);
/* Makes room for so many more questions. Returns false if there is no memory. */
bool al_prober_reserve(al_prober *prober, size_t more);
/* Publishes a message. The prober must be ready and have room. `life`: see al_message_properties(). `question` tells
 * the asker, its index, and when it was first asked. */
void al_prober_publish(al_prober *prober, al_message message, const char *queue, al_life *life,
                       al_question question);
/* The asker is not notified of its questions any more. */
void al_prober_forget(al_prober *prober, const al_asker *asker);

/* Publishes a token to a doorbell (message.h) on the session's prober, and does not wait for the answer. Returns
 * false if the prober is not open, is blocked, or may not publish. */
bool al_prober_ring(al_session *session, const char *bell);

/* ---- asking by publishing, or passively --------------------------------------------------------------------------- */

/* True if questions asked in this way are sent on the prober now. Otherwise they are sent on the holder. */
bool al_probing_publishes(const al_session *session, al_probing probing);
/* al_op_needs() for an operation that claims on the holder and asks whether queues exist. */
bool al_probing_needs(al_op *op, al_probing probing);
/* al_op_has() for the same links. */
bool al_probing_has(al_op *op, al_probing probing);

#endif
