/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The bolt: what keeps an exclusive queue's holder alone where the queue itself does not.
 *
 * Before 4.3, a RabbitMQ queue that ends takes away whatever stands under its name, be it another's by now. A client that dies
 * while its declare is under way leaves a queue that starts, finds its owner dead, and ends at once: maybe after the next
 * holder's was declared. That one is then there no more, for anybody but its holder; another can be declared beside it; and
 * each of them, when it ends, does the same to the next.
 *
 * So there a claim also consumes, exclusively, from a queue beside the one it declares: Q-bolt. That one is nobody's, it is
 * there before and after, and its own process says who consumes from it. Whoever may not enter while somebody holds Q, and
 * claims no Q of its own (a reader), asks how many consume from the bolt.
 *
 * Nothing but probes ever goes there, which mean nothing to whoever consumes them. The queue expires when it was not used for
 * ten seconds: a program that locks many things once has as many bolts behind it. Where it may not be declared or consumed
 * from, claims of this one queue do without, for a minute. */
#ifndef AL_CORE_HOLD_BOLT_H
#define AL_CORE_HOLD_BOLT_H

#include "core/session/session.h"
#include "core/wire/channel.h"

#define AL_DENIED_MOST 16

/* Bolts that were denied; the latest of them, if there are more. */
typedef struct al_denied_bolts {
  struct {
    char name[AL_NAME_SIZE];
    int64_t until;
  } list[AL_DENIED_MOST];
  unsigned count;
  int64_t told_until; /* so long people are not told again */
} al_denied_bolts;

/* Of a broker that needs bolts; and this one was not denied lately. */
bool al_bolt_is_needed(const al_session *session, const char *bolt);

/* Goes before the claim's declare. It is not answered; the declare-ok behind it proves that it is shut. If another has shut it
 * the channel is closed. `tag`: the claim's. */
void al_bolt_shut(al_channel *channel, const char *bolt, const char *tag);

/* At any time after that, as the consume has no answer to be overtaken. Is answered with cancel-ok. */
void al_bolt_open(al_channel *channel, const char *tag);

/* That consumer's, of a claim with this tag. */
bool al_bolt_is_tag(amqp_bytes_t consumer_tag, const char *tag);

/* Asks who has shut it: the answer is a declare-ok, with as many consumers. */
void al_bolt_look(al_channel *channel, const char *bolt);

typedef enum al_bolt_verdict {
  AL_BOLT_OTHER,  /* it is not the bolt that was refused */
  AL_BOLT_LOST,   /* another has it, or it has just expired: it may be had next time */
  AL_BOLT_REFUSED /* it cannot be had */
} al_bolt_verdict;

/* Why the channel was closed. */
al_bolt_verdict al_bolt_judge(const al_event *event, const char *bolt);

/* Claims do without it from now on, and people are told, once a minute of all together. */
void al_bolt_deny(al_session *session, const char *bolt, const char *text);

#endif
