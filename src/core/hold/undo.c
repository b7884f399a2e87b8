/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/undo.h"

#include "core/session/session.h"

static void settled(al_undo *undo) {
  undo->channel = NULL;
  al_claim_enter(undo->claim, AL_CLAIM_GONE);
}

/* The queue will go with its channel. Nothing is left to do but to check again, after a backoff. */
static void later(al_undo *undo) {
  al_session *session = undo->claim->session;
  undo->channel = NULL;
  undo->at = session->now + al_backoff_next(&undo->wait, &session->random);
}

static void closed(al_undo *undo, const al_event *event) {
  al_claim *claim = undo->claim;
  if (event->reply_code == AMQP_RESOURCE_LOCKED || event->reply_code == AMQP_NOT_FOUND) {
    settled(undo);
    return;
  }
  /* A channel that closes for reasons of its own tells nothing of the queue: the next channel deletes it. */
  if (event->method != 0 && !claim->is_denied) al_claim_deny(claim, event->text);
  later(undo);
}

static void undo_event(void *owner, al_channel *channel, const al_event *event) {
  al_undo *undo = owner;
  if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD) {
    al_channel_give(channel);
    settled(undo);
  } else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD) {
    al_channel_give(channel);
    later(undo);
  } else if (event->kind == AL_EVENT_CLOSED) {
    closed(undo, event);
  } else if (event->kind == AL_EVENT_DOWN) {
    settled(undo);
  } else {
    return;
  }
  al_claim_notify(undo->claim);
}

static void ask(al_undo *undo) {
  al_claim *claim = undo->claim;
  undo->channel = al_channel_take(&claim->session->holder, undo_event, undo);
  undo->at = 0;
  if (undo->channel && claim->is_denied)
    al_channel_declare_passive(undo->channel, claim->queue);
  else if (undo->channel)
    al_channel_delete(undo->channel, claim->queue);
}

void al_undo_begin(al_undo *undo, al_claim *claim) {
  *undo = (al_undo){.claim = claim, .wait = AL_BACKOFF_UNDO};
  ask(undo);
  al_claim_enter(claim, AL_CLAIM_UNDOING);
}

/* While it has a channel, the answer on that decides. */
static bool is_idle(const al_undo *undo) {
  return undo->claim && undo->claim->state == AL_CLAIM_UNDOING && !undo->channel;
}

int64_t al_undo_sweep(al_undo *undo) {
  if (!is_idle(undo)) return AL_NEVER;
  if (undo->at <= undo->claim->session->now) ask(undo);
  return undo->at > 0 ? undo->at : AL_NEVER;
}

void al_undo_down(al_undo *undo) {
  if (is_idle(undo)) al_claim_enter(undo->claim, AL_CLAIM_GONE);
}
