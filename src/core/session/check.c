/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/check.h"

#include "core/session/session.h"

static void check_event(void *owner, al_channel *channel, const al_event *event) {
  al_check *check = owner;
  bool is_there = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  bool is_over = event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN;
  if (!is_there && !is_over) return;
  if (is_over)
    check->channel = NULL;
  else if (channel->unanswered == 0)
    al_check_drop(check);
  if (event->kind != AL_EVENT_DOWN) check->answered(check->claim, event);
  al_claim_notify(check->claim);
}

void al_check_init(al_check *check, al_claim *claim, al_check_fn *answered) {
  *check = (al_check){.claim = claim, .answered = answered};
}

bool al_check_ask(al_check *check) {
  if (!check->channel) check->channel = al_channel_take(check->claim->link, check_event, check);
  if (check->channel) al_channel_declare_passive(check->channel, check->claim->queue);
  return check->channel != NULL;
}

void al_check_drop(al_check *check) {
  if (check->channel) al_channel_give(check->channel);
  check->channel = NULL;
}
