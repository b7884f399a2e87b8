/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The messages that this library publishes. Each is published with `mandatory` and confirmed by the broker. So the
 * answer also tells whether the queue exists (probe.h).
 *
 * A doorbell is a queue of tokens. A token is a message that wakes one waiter. */
#ifndef AL_CORE_SESSION_MESSAGE_H
#define AL_CORE_SESSION_MESSAGE_H

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef enum al_message {
  AL_MESSAGE_PROBE,  /* only asks whether the queue exists */
  AL_MESSAGE_REVOKE, /* to a held queue: asks its holder to release it */
  AL_MESSAGE_TOKEN,  /* to a doorbell: stays until it wakes a waiter */
  AL_MESSAGE_WAITING, /* to a held queue, where waiters declare the doorbell: tells the holder that somebody waits */
  AL_MESSAGE_READERS, /* only asks whether a queue is bound to AL_READERS_EXCHANGE with this routing key */
  AL_MESSAGE_REVOKE_READERS, /* as AL_MESSAGE_REVOKE, to all queues that are bound with this routing key */
  AL_MESSAGE_PERMIT,         /* of a token semaphore: stays for ever, and has an id of its own */
  AL_MESSAGE_MARK /* of a token semaphore: one for each permit, in a second queue, where permits are counted */
} al_message;

/* The values of the message property `type`. AL_MESSAGE_PROBE and AL_MESSAGE_READERS have none. */
#define AL_TYPE_REVOKE "amqplocks.revoke"
#define AL_TYPE_TOKEN "amqplocks.token"
#define AL_TYPE_WAITING "amqplocks.waiting"
#define AL_TYPE_PERMIT "amqplocks.permit"
#define AL_TYPE_MARK "amqplocks.mark"

/* The queues of a lock's readers are bound to this exchange, because it always exists and nobody can delete it. */
#define AL_READERS_EXCHANGE "amq.direct"

/* Where an alternate exchange takes messages to it that reach no queue, readers are not counted. %s: the lock. */
#define AL_ALTERNATE_WORDS                                                                                   \
  "each message to " AL_READERS_EXCHANGE " reaches a queue, so the readers of \"%s\" cannot be counted; is " \
  "there a policy with an alternate-exchange?"

/* True if the message is only a question: to publish it twice has no other effect than to publish it once. */
bool al_message_is_question(al_message message);

/* True if the message goes to AL_READERS_EXCHANGE. All others go to the default exchange. */
bool al_message_is_to_readers(al_message message);

/* Returns the properties of a message that is published as the question `id` (prober.h). They hold `id` as the
 * message id. A permit has an id for life, `life_id`, as its message id, and `id` as its correlation id. For all
 * other messages `life_id` is NULL. The result points to the arguments. */
amqp_basic_properties_t al_message_properties(al_message message, const char *id, const char *life_id);

#endif
