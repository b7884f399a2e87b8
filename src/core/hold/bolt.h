/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The bolt: a second queue that keeps the holder of an exclusive queue alone where RabbitMQ itself does not.
 *
 * Before 4.3 a holder can be robbed (docs/specification.md, 9.2): its queue exists for nobody but itself, and another
 * client can declare a second queue of the same name. On such a broker a claim on queue Q also consumes, exclusively,
 * from the queue Q-bolt. This is called shutting the bolt. Q-bolt belongs to no connection and exists before and after
 * the claim. A client that must not enter while somebody holds Q, and claims no Q of its own (a reader), asks how many
 * consumers the bolt has.
 *
 * Only probes are ever published to a bolt; they mean nothing to its consumer. The queue expires after ten seconds
 * without use: a program that locks many things once leaves as many bolts for that time. Where a bolt may not be
 * declared or consumed from, claims of this one queue do without it for a minute. */
#ifndef AL_CORE_HOLD_BOLT_H
#define AL_CORE_HOLD_BOLT_H

#include "core/session/session.h"
#include "core/wire/channel.h"

/* True if the broker needs bolts, and this bolt was not denied lately. */
bool al_bolt_is_needed(const al_session *session, const char *bolt);

/* Written before the claim's declare. The broker does not answer it: the declare-ok behind it proves that the bolt is
 * shut. If another client has shut it, the broker closes the channel. `tag`: the claim's. */
void al_bolt_shut(al_channel *channel, const char *bolt, const char *tag);

/* At any time after al_bolt_shut(): its consume has no answer that could be overtaken. The answer is cancel-ok. */
void al_bolt_open(al_channel *channel, const char *tag);

/* True if this is the tag of the bolt's consumer, for a claim whose tag is `tag`. */
bool al_bolt_is_tag(amqp_bytes_t consumer_tag, const char *tag);

/* Asks whether the bolt is shut: the answer is a declare-ok with the number of consumers. */
void al_bolt_declare_passive(al_channel *channel, const char *bolt);

typedef enum al_bolt_verdict {
  AL_BOLT_OTHER,  /* the refusal is not about the bolt */
  AL_BOLT_LOST,   /* another client has it, or it has just expired: retry */
  AL_BOLT_REFUSED /* we cannot have it: claims do without */
} al_bolt_verdict;

/* Tells from the event that closed the channel what it means for the bolt. */
al_bolt_verdict al_bolt_judge(const al_event *event, const char *bolt);

/* Claims do without this bolt for a minute. One note a minute tells people, for all bolts together. */
void al_bolt_deny(al_session *session, const char *bolt, const char *text);

#endif
