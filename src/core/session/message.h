/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The messages that this library publishes. Every one is published with `mandatory` and confirmed, so its answer also tells
 * whether the queue exists (probe.h). */
#ifndef AL_CORE_SESSION_MESSAGE_H
#define AL_CORE_SESSION_MESSAGE_H

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef enum al_message {
  AL_MESSAGE_PROBE,   /* nothing but the question whether the queue exists */
  AL_MESSAGE_REVOKE,  /* to a held queue: asks its holder to release it */
  AL_MESSAGE_TOKEN,   /* to a doorbell: stays until it wakes a waiter */
  AL_MESSAGE_WAITING, /* to a held queue, where waiters make the bell: tells its holder that somebody waits */
  AL_MESSAGE_READERS, /* nothing but the question whether a queue is bound to AL_READERS_EXCHANGE by this key */
  AL_MESSAGE_PERMIT, /* of a token semaphore: stays for ever, and has an id of its own */
  AL_MESSAGE_MARK    /* one for each permit, in a queue beside them */
} al_message;

/* The types that these messages bear; a probe has none. */
#define AL_TYPE_REVOKE "amqplocks.revoke"
#define AL_TYPE_TOKEN "amqplocks.token"
#define AL_TYPE_WAITING "amqplocks.waiting"
#define AL_TYPE_PERMIT "amqplocks.permit"
#define AL_TYPE_MARK "amqplocks.mark"

/* The readers of a lock are bound to it: it always exists, and nobody can delete it under them. */
#define AL_READERS_EXCHANGE "amq.direct"

/* True if asking twice does no more than asking once. */
bool al_message_is_question(al_message message);

/* The properties of a message whose question has this id. A permit has an id for life as well, `life_id`, and bears the
 * question's in its correlation id; for other messages it is NULL. The result points to the arguments. */
amqp_basic_properties_t al_message_properties(al_message message, const char *id, const char *life_id);

#endif
