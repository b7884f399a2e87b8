/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Does a queue exist? ("Determining Queue Existence".) A mandatory publish to the default exchange, with confirms on,
 * is returned if the queue is absent and then acknowledged; only acknowledged if it is present; nacked if it exists but
 * refuses or is going away. A batch of questions is written at once and answered in one round trip. Confirms come out
 * of order and many at a time, and a return carries no delivery tag, so a return is matched by its message id, a
 * counter that is never used twice on a connection. (A permit, which has a message id for life, has the counter in its
 * correlation id.)
 *
 * The messages expire at once, so a plain queue made by other software, without x-max-length=0, keeps none of them.
 *
 * While the broker does not read publishers (connection.blocked), or denies publishing, the same question is asked by
 * passive declares, on channels of the holder: it never publishes, so it is never blocked. A "no" costs its channel. */
#ifndef AL_CORE_SESSION_PROBE_H
#define AL_CORE_SESSION_PROBE_H

#include "amqplocks.h"
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

/* What is published. Whatever it is, its answer says whether the queue exists. */
typedef enum al_message {
  AL_MESSAGE_PROBE,  /* nothing but the question */
  AL_MESSAGE_REVOKE, /* to B: whoever holds it is asked to let go */
  AL_MESSAGE_TOKEN,  /* to a doorbell: stays until somebody is woken by it */
  AL_MESSAGE_WAITING, /* to B, where those who wait make the bell: whoever holds it learns that somebody does */
  AL_MESSAGE_READERS, /* nothing but the question whether anybody is bound to AL_READERS_EXCHANGE by this key */
  AL_MESSAGE_PERMIT, /* of a token semaphore: stays for ever, and has an id of its own */
  AL_MESSAGE_MARK    /* one for each of those, beside them */
} al_message;

/* The types these messages bear; a probe has none. */
#define AL_TYPE_REVOKE "amqplocks.revoke"
#define AL_TYPE_TOKEN "amqplocks.token"
#define AL_TYPE_WAITING "amqplocks.waiting"
#define AL_TYPE_PERMIT "amqplocks.permit"
#define AL_TYPE_MARK "amqplocks.mark"

#define AL_NO_PUBLISHERS "the broker reads no publishers (memory or disk alarm)"

/* To which those who read are bound: it is always there, and nobody can delete it under them. */
#define AL_READERS_EXCHANGE "amq.direct"

typedef struct al_probes al_probes;
typedef struct al_prober al_prober;

/* Writes the name of the queue that question `index` is about. */
typedef void al_probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]);

#define AL_PASSIVE_CHANNELS 16

/* A batch of questions, part of the operation that asks them. */
struct al_probes {
  al_op *op;          /* stepped whenever `pending` has become 0 */
  al_message message; /* set by its owner before it begins; what is no mere probe must be published */
  al_probing probing;
  al_probe_name *name;
  const void *context;
  al_answer *answers;
  size_t count, size, pending;
  char text[160]; /* the broker's words about the last DENIED or UNKNOWN */

  struct al_passive {
    al_probes *batch;
    al_channel *channel; /* NULL: free */
    size_t index;
  } passive[AL_PASSIVE_CHANNELS];
  bool is_passive, is_published;
  size_t passive_next; /* the next question to be asked passively */
};

/* One question on its way. */
struct al_question {
  al_probes *batch; /* NULL: nobody waits for it any more */
  size_t index;
  int64_t asked_at;
  bool returned, settled;
};

/* The publishing side: a connection that nothing is ever held on. Sessions may have one in common: it is then carried by the
 * transport of one of them, its owner, and goes down with that one; the others are stepped when it answers. It has settings
 * and a seed of its own, as it may outlive its owner. Questions are a queue by delivery tag: first is tag `first_tag`. */
struct al_prober {
  int refs;
  al_settings settings;
  uint64_t random;
  al_cluster cluster; /* of its users' holders, too */
  al_link link;
  al_session *owner; /* whose transport carries it; NULL: nobody's any more */
  al_session *users; /* whose operations ask by it, the owner's among them */
  al_channel *channel;
  struct al_question *questions; /* a ring of `size` */
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

/* True if questions asked this way now need the prober's link; otherwise the holder's. */
bool al_probes_publish(const al_session *session, al_probing probing);

/* Asks `count` questions; answers stand in batch->answers when batch->pending is 0. False: no memory or no channel, and
 * the operation has failed. The link needed must be open. */
bool al_probes_begin(al_probes *batch, al_op *op, al_probing probing, size_t count, al_probe_name *name,
                     const void *context);

/* Publishes a token to a doorbell and awaits no answer. False: the prober is not open, is blocked, or may not publish. */
bool al_prober_ring(al_prober *prober, const char *bell);

/* Lets go of a batch under way. */
void al_probes_cancel(al_probes *batch);
void al_probes_free(al_probes *batch);

/* Fails the operation for an answer that decides nothing (DENIED, UNKNOWN). True if it was such an answer. */
bool al_probes_undecided(al_probes *batch, size_t index);

#endif
