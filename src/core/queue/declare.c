/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/declare.h"

#include "core/base/field.h"
#include "core/wire/link.h"

/* Versions of RabbitMQ. */
#define HAS_DELIVERY_LIMIT                                                                                   \
  40000                   /* quorum queues have one unless told; before, -1 would be the tightest of all */
#define HAS_TIMEOUT 31200 /* queues may have one of their own; from then on until classic ones have none: */
#define CLASSIC_HAS_NONE 40300 /* and a queue that is told nevertheless is refused */

#define TEN_YEARS                                                                                            \
  INT64_C(315360000000) /* milliseconds; a timer is made of it, and 2^53 is too much for that one */

static bool has_timeout(int version, bool quorum) {
  return version >= HAS_TIMEOUT && (quorum || version < CLASSIC_HAS_NONE);
}

/* A quorum queue would drop a message after some twenty consumers that died with it. */
void al_declare_durable(al_channel *channel, const char *queue, bool quorum, bool is_held) {
  int version = channel->link->version, count = 1;
  amqp_table_entry_t entries[3] = {al_field_text("x-queue-type", quorum ? "quorum" : "classic")};
  if (quorum && version >= HAS_DELIVERY_LIMIT) entries[count++] = al_field_number("x-delivery-limit", -1);
  if (is_held && has_timeout(version, quorum))
    entries[count++] = al_field_number("x-consumer-timeout", TEN_YEARS);
  amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(queue),
                                  .durable = 1,
                                  .arguments = {.num_entries = count, .entries = entries}};
  al_channel_call(channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}
