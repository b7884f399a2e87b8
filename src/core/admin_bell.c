/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin_bell.h"

#include <stdio.h>

#include "core/field.h"
#include "core/name.h"
#include "core/session.h"

#define TOKENS_AT_ONCE 512
#define HAS_DELIVERY_LIMIT                                                                                   \
  40000 /* the version of RabbitMQ from which on quorum queues have one unless told */

/* ---- looking for it --------------------------------------------------------------------------------------------- */

static void find_event(void *owner, al_channel *channel, const al_event *event) {
  al_admin_bell *bell = owner;
  const amqp_queue_declare_ok_t *declared = event->decoded;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  bell->channel = NULL;
  bell->exists = is_declared || !al_event_is_absent(event); /* down with its node, it is not to be declared */
  al_op_answered(bell->op);
  if (is_declared) {
    bell->ready = (int)declared->message_count;
    al_channel_give(channel);
  } else if (event->kind == AL_EVENT_DOWN) {
    al_op_fail_link(bell->op, channel->link);
    return;
  } else if (event->reply_code != AMQP_NOT_FOUND) {
    bool locked = event->reply_code == AMQP_RESOURCE_LOCKED;
    al_op_fail(bell->op, locked ? AL_SQUATTED : al_event_refusal(event), "queue \"%s\": %s", bell->queue,
               event->text);
    return;
  }
  bell->op->step(bell->op);
}

void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name) {
  bell->op = op;
  al_name_bell(bell->queue, name);
  bell->channel = al_channel_take(&op->session->holder, find_event, bell);
  if (!bell->channel) {
    al_op_fail(op, AL_LIMIT, "no channel is left on the connection");
    return;
  }
  amqp_queue_declare_t look = {.queue = amqp_cstring_bytes(bell->queue), .passive = 1};
  al_op_ask(op);
  al_channel_call(bell->channel, AMQP_QUEUE_DECLARE_METHOD, &look);
}

bool al_admin_bell_found(const al_admin_bell *bell) { return !bell->channel && !bell->op->done; }

/* ---- making it -------------------------------------------------------------------------------------------------- */

/* A token goes round and round; a quorum queue would drop it after some twenty holders that died with it. */
void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel, bool quorum) {
  amqp_table_entry_t entries[] = {al_field_text("x-queue-type", quorum ? "quorum" : "classic"),
                                  al_field_number("x-delivery-limit", -1)};
  bool has_limit = quorum && channel->link->version >= HAS_DELIVERY_LIMIT;
  amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(bell->queue),
                                  .durable = 1,
                                  .arguments = {.num_entries = has_limit ? 2 : 1, .entries = entries}};
  al_channel_call(channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

/* ---- tokens ----------------------------------------------------------------------------------------------------- */

static void token_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_admin_bell *)context)->queue);
}

static void give_up(al_admin_bell *bell, const char *why) {
  bell->missing = 0;
  al_session_note(bell->op->session, true, "\"%s\" lacks tokens (%s): those who wait look by themselves",
                  bell->queue, why);
}

static void publish_some(al_admin_bell *bell) {
  al_session *session = bell->op->session;
  int some = bell->missing < TOKENS_AT_ONCE ? bell->missing : TOKENS_AT_ONCE;
  if (bell->missing > 0 && !al_probes_publish(session, AL_PROBE_AUTO))
    give_up(bell, "the broker reads no publishers");
  if (bell->missing > 0 && !al_link_is_open(&session->prober))
    give_up(bell, "the connection to publish them is lost");
  if (bell->missing <= 0) return;
  bell->missing -= some;
  bell->is_ringing = true;
  bell->tokens.message = AL_MESSAGE_TOKEN;
  al_op_ask(bell->op);
  al_probes_begin(&bell->tokens, bell->op, AL_PROBE_PUBLISH, (size_t)some, token_name, bell);
}

void al_admin_bell_ring(al_admin_bell *bell, int tokens) {
  bell->missing = tokens;
  publish_some(bell);
}

bool al_admin_bell_rung(al_admin_bell *bell) {
  if (bell->op->done || bell->tokens.pending > 0) return false;
  if (!bell->is_ringing) return true;
  bell->is_ringing = false;
  al_op_answered(bell->op);
  for (size_t i = 0; i < bell->tokens.count; i++)
    if (bell->tokens.answers[i] != AL_ANSWER_PRESENT) {
      give_up(bell, "the broker did not take them");
      break;
    }
  publish_some(bell);
  return !bell->is_ringing && !bell->op->done;
}

void al_admin_bell_cancel(al_admin_bell *bell) {
  if (bell->channel) al_channel_close(bell->channel);
  bell->channel = NULL;
  al_probes_cancel(&bell->tokens);
}

void al_admin_bell_free(al_admin_bell *bell) { al_probes_free(&bell->tokens); }
