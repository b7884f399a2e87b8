/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/barrier.h"

#include "core/base/field.h"
#include "core/base/name.h"
#include "core/queue/declare.h"
#include "core/session/prober.h"
#include "core/session/session.h"
#include "core/wire/channel.h"

/* The broker reads the holder also while it tells it connection.blocked, because the holder does not publish. */
static bool is_blocked(const al_session *session, const al_link *link) {
  return link == session->prober && link->blocked;
}

static void barrier_event(void *owner, al_channel *channel, const al_event *event) {
  al_barrier *barrier = owner;
  if (event->kind == AL_EVENT_CONTENT) return;
  if (event->kind == AL_EVENT_METHOD && event->method != AMQP_QUEUE_DELETE_OK_METHOD) return;
  barrier->channel = NULL;
  barrier->is_lost = event->kind == AL_EVENT_DOWN;
  if (event->kind == AL_EVENT_CLOSED) {
    al_op_fail(barrier->op, al_event_refusal(event), "%s", event->text);
    return;
  }
  if (!barrier->is_lost) al_channel_give(channel);
  al_op_answered(barrier->op);
  al_op_step(barrier->op);
}

void al_barrier_begin(al_barrier *barrier, al_op *op, al_probing probing, const char *name) {
  al_session *session = op->session;
  al_link *link = al_probing_publishes(session, probing) ? session->prober : &session->holder;
  char queue[AL_NAME_SIZE], ticket[AL_TICKET_SIZE];
  if (!al_op_has(op, link)) return;
  if (is_blocked(session, link)) {
    al_op_fail(op, AL_BLOCKED, AL_NO_PUBLISHERS);
    return;
  }
  *barrier = (al_barrier){.op = op, .probing = probing, .name = name, .link = link};
  barrier->channel = al_channel_take(link, barrier_event, barrier);
  if (!barrier->channel) {
    al_op_fail_channel(op, link, "no channel is left on the connection");
    return;
  }
  al_session_ticket(session, ticket);
  al_name_scratch(queue, name, ticket);
  al_op_ask(op);
  al_declare_scratch(barrier->channel, queue);
  al_channel_delete(barrier->channel, queue);
}

void al_barrier_cancel(al_barrier *barrier) {
  barrier->is_lost = false;
  if (!barrier->channel) return;
  al_channel_close(barrier->channel);
  barrier->channel = NULL;
}

/* The broker has stopped reading this connection, and may not have read the declare and the delete before. */
static void begin_anew(al_barrier *barrier) {
  al_barrier_cancel(barrier);
  al_barrier_begin(barrier, barrier->op, barrier->probing, barrier->name);
}

bool al_barrier_poll(al_barrier *barrier) {
  if (barrier->is_lost)
    al_op_fail_link(barrier->op, barrier->link);
  else if (barrier->channel && is_blocked(barrier->op->session, barrier->link))
    begin_anew(barrier);
  return !barrier->channel && !barrier->op->done;
}
