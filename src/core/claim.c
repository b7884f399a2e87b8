/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/field.h"
#include "core/link.h"
#include "core/op.h"
#include "core/session.h"

/* ---- the table of names ----------------------------------------------------------------------------------------- */

static al_claim **bucket(al_session *session, const char *queue) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (const char *c = queue; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
  return &session->holder.names[hash % AL_NAME_BUCKETS];
}

al_claim *al_claim_find(al_session *session, const char *queue) {
  al_claim *claim = *bucket(session, queue);
  while (claim && strcmp(claim->queue, queue) != 0) claim = claim->next_name;
  return claim;
}

static void name_enter(al_claim *claim) {
  al_claim **first = bucket(claim->session, claim->queue);
  claim->next_name = *first;
  *first = claim;
}

static void name_remove(al_claim *claim) {
  al_claim **at = bucket(claim->session, claim->queue);
  while (*at && *at != claim) at = &(*at)->next_name;
  if (*at) *at = claim->next_name;
}

/* ---- states ----------------------------------------------------------------------------------------------------- */

static void enter(al_claim *claim, al_claim_state state) {
  bool held = state == AL_CLAIM_HELD;
  if (held != claim->is_pulsed) claim->session->holder.pulses += held ? 1 : -1;
  claim->is_pulsed = held;
  claim->state = state;
  if (state != AL_CLAIM_GONE) return;
  name_remove(claim);
  al_bell_leave(claim->bell, claim->is_declared);
  claim->bell = NULL;
}

/* Whoever watches looks for itself. Called for what the broker did, never for what a watcher did. */
static void notify(al_claim *claim) {
  for (al_op *op = claim->session->ops, *next; op; op = next) {
    next = op->next;
    if (op->claim == claim || op->watches_claims) op->step(op);
  }
}

static void blame(al_claim *claim, al_code code, const char *why) {
  if (claim->code != AL_OK) return; /* the first reason is the reason */
  claim->code = code;
  snprintf(claim->why, sizeof claim->why, "%.*s", (int)sizeof claim->why - 1, why);
}

static void lose(al_claim *claim, const char *why) {
  blame(claim, AL_LOST, why);
  if (claim->state != AL_CLAIM_HELD) return;
  al_session_note(claim->session, true, "\"%s\" was lost: %s", claim->queue, claim->why);
  al_session_alert(claim->session);
}

static void send_delete(al_claim *claim) {
  amqp_queue_delete_t request = {.queue = amqp_cstring_bytes(claim->queue)};
  al_channel_call(claim->channel, AMQP_QUEUE_DELETE_METHOD, &request);
}

/* ---- undoing ---------------------------------------------------------------------------------------------------- */

static void undo_settled(al_claim *claim, al_channel *channel) {
  claim->channel = NULL;
  if (channel) al_channel_give(channel);
  enter(claim, AL_CLAIM_GONE);
}

/* Nothing more can be done than to see the queue go with its channel; how soon to look (again), is backed off. */
static void undo_later(al_claim *claim) {
  al_session *session = claim->session;
  claim->channel = NULL;
  claim->undo_at = session->now + al_wait_next(&claim->undo_wait, &session->random);
}

static void undo_refused(al_claim *claim, const al_event *event) {
  /* 405: it is somebody else's by now. 404: it is going away. */
  if (event->reply_code == AMQP_RESOURCE_LOCKED || event->reply_code == AMQP_NOT_FOUND) {
    undo_settled(claim, NULL);
    return;
  }
  if (!claim->is_denied) snprintf(claim->denial, sizeof claim->denial, "%.159s", event->text);
  claim->is_denied = true;
  undo_later(claim);
}

static void undo_event(void *owner, al_channel *channel, const al_event *event) {
  al_claim *claim = owner;
  if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DELETE_OK_METHOD) {
    undo_settled(claim, channel);
  } else if (event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD) {
    al_channel_give(channel); /* it is still there */
    undo_later(claim);
  } else if (event->kind == AL_EVENT_CLOSED) {
    undo_refused(claim, event);
  } else if (event->kind == AL_EVENT_DOWN) {
    undo_settled(claim, NULL);
  } else {
    return;
  }
  notify(claim);
}

/* The channel is gone, the queue may not be: a refused consume, for one, leaves it standing. It is deleted from another
 * channel; where that is denied it is looked for until it is gone. */
static void undo(al_claim *claim) {
  amqp_queue_declare_t look = {.queue = amqp_cstring_bytes(claim->queue), .passive = 1};
  claim->channel = al_channel_take(&claim->session->holder, undo_event, claim);
  if (claim->channel && claim->is_denied)
    al_channel_call(claim->channel, AMQP_QUEUE_DECLARE_METHOD, &look);
  else if (claim->channel)
    send_delete(claim);
  enter(claim, AL_CLAIM_UNDOING);
}

/* ---- events of the claim's own channel -------------------------------------------------------------------------- */

static bool same(amqp_bytes_t bytes, const char *text) {
  return bytes.len == strlen(text) && memcmp(bytes.bytes, text, bytes.len) == 0;
}

static void tell_revoked(al_claim *claim) {
  al_session_note(claim->session, false, "\"%s\" is asked for: an administrator wants it let go",
                  claim->queue);
  al_session_alert(claim->session);
}

/* Whoever asked was told that a holder got the request, and may not ask twice: so it counts from the queue's first moment,
 * before the last of our own answers has come. */
static void revoked(al_claim *claim) {
  bool is_ours = claim->state == AL_CLAIM_CLAIMING || claim->state == AL_CLAIM_HELD;
  if (!is_ours || claim->is_revoked) return;
  claim->is_revoked = true;
  if (claim->state == AL_CLAIM_HELD) tell_revoked(claim);
}

static void settle(al_claim *claim) {
  if (claim->state != AL_CLAIM_CLAIMING) return;
  if (!claim->is_declared || !claim->is_consumed || claim->looks_ok < claim->looks) return;
  claim->acquired_at = claim->session->wall + (double)claim->session->now / (double)AL_SECOND;
  enter(claim, AL_CLAIM_HELD);
  if (claim->is_revoked) tell_revoked(claim);
}

static void cancelled(al_claim *claim) {
  al_channel *channel = claim->channel;
  if (claim->state == AL_CLAIM_RELEASING) return; /* ours: delete-ok follows, or came before */
  claim->channel = NULL;
  al_channel_close(channel);
  lose(claim, "its queue was deleted by somebody else");
  enter(claim, AL_CLAIM_GONE);
}

static void declared(al_claim *claim, bool ours) {
  if (claim->state == AL_CLAIM_HELD)
    claim->confirmed++;
  else if (ours)
    claim->is_declared = true;
  else
    claim->looks_ok++;
  settle(claim);
}

static void deleted(al_claim *claim) {
  al_channel_give(claim->channel);
  claim->channel = NULL;
  enter(claim, AL_CLAIM_GONE);
}

/* True if the method was the claim's own business. */
static bool method_arrived(al_claim *claim, const al_event *event) {
  switch (event->method) {
    case AMQP_CHANNEL_OPEN_OK_METHOD:
      return true;
    case AMQP_QUEUE_DECLARE_OK_METHOD: {
      bool ours = same(((amqp_queue_declare_ok_t *)event->decoded)->queue, claim->queue);
      if (claim->state == AL_CLAIM_HELD && !ours) return false;
      declared(claim, ours);
      return true;
    }
    case AMQP_BASIC_CONSUME_OK_METHOD:
      claim->is_consumed = true;
      settle(claim);
      return true;
    case AMQP_BASIC_CANCEL_METHOD:
      if (same(((amqp_basic_cancel_t *)event->decoded)->consumer_tag, claim->ticket)) cancelled(claim);
      return true;
    case AMQP_QUEUE_DELETE_OK_METHOD:
      if (claim->other_deletes > 0) {
        claim->other_deletes--;
        return false;
      }
      if (claim->state == AL_CLAIM_RELEASING) deleted(claim);
      return true;
    default:
      return false;
  }
}

/* What the broker's words mean for a claim that was not yet held. */
static void refused(al_claim *claim, const al_event *event) {
  al_code code = al_event_refusal(event);
  if (event->reply_code == AMQP_RESOURCE_LOCKED) code = AL_CONTENDED;
  if (event->reply_code == AMQP_NOT_FOUND) code = AL_REMOVED;
  blame(claim, code, event->text);
}

static void channel_closed(al_claim *claim, const al_event *event) {
  bool was_claiming = claim->state == AL_CLAIM_CLAIMING, was_held = claim->state == AL_CLAIM_HELD;
  bool made_nothing = !claim->is_declared && event->method == AMQP_QUEUE_DECLARE_METHOD;
  claim->channel = NULL;
  if (was_claiming) refused(claim, event);
  if (claim->state == AL_CLAIM_HELD) lose(claim, event->text);
  if (made_nothing)
    enter(claim, AL_CLAIM_GONE);
  else
    undo(claim);
  if (claim->on && was_held)
    claim->on(claim->on_op, event); /* who may let go of the claim: it is in order by now */
}

static void claim_event(void *owner, al_channel *channel, const al_event *event) {
  al_claim *claim = owner;
  (void)channel;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      if (!method_arrived(claim, event) && claim->on) claim->on(claim->on_op, event);
      break;
    case AL_EVENT_CONTENT: /* mostly a probe, by other software or by us, or for the channel's last owner */
      if (strcmp(event->content->consumer_tag, claim->ticket) == 0 &&
          strcmp(event->content->type, AL_TYPE_REVOKE) == 0)
        revoked(claim);
      return;
    case AL_EVENT_CLOSED:
      channel_closed(claim, event);
      break;
    case AL_EVENT_DOWN:
      claim->channel = NULL;
      lose(claim, claim->session->holder.why);
      enter(claim, AL_CLAIM_GONE);
      break;
  }
  notify(claim);
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

static void send_declare(al_claim *claim) {
  al_session *session = claim->session;
  int64_t wall = (int64_t)(session->wall + (double)session->now / (double)AL_SECOND);
  amqp_table_entry_t entries[] = {al_field_text("x-queue-type", "classic"),
                                  al_field_number("x-max-length", 0),
                                  al_field_text("x-overflow", "drop-head"),
                                  al_field_text("x-amqplocks-ticket", claim->ticket),
                                  al_field_text("x-amqplocks-holder", session->settings.name),
                                  al_field_number("x-amqplocks-acquired-at", wall)};
  amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(claim->queue),
                                  .exclusive = 1,
                                  .auto_delete = 1,
                                  .arguments = {.num_entries = 6, .entries = entries}};
  al_channel_call(claim->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

static void send_claim(al_claim *claim) {
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(claim->queue),
                                  .consumer_tag = amqp_cstring_bytes(claim->ticket),
                                  .no_ack = 1};
  send_declare(claim);
  al_channel_call(claim->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
  for (int i = 0; i < claim->looks; i++) {
    amqp_queue_declare_t look = {.queue = amqp_cstring_bytes(claim->look[i]), .passive = 1};
    al_channel_call(claim->channel, AMQP_QUEUE_DECLARE_METHOD, &look);
  }
}

static al_claim *claim_new(al_session *session, const char *queue) {
  al_claim *claim = calloc(1, sizeof *claim);
  if (!claim) return NULL;
  claim->session = session;
  claim->users = 1;
  claim->undo_wait = AL_WAIT_UNDO;
  snprintf(claim->queue, sizeof claim->queue, "%s", queue);
  al_session_ticket(session, claim->ticket);
  return claim;
}

al_claim *al_claim_begin(al_op *op, const char *queue, int looks, char look[][AL_NAME_SIZE]) {
  al_session *session = op->session;
  al_claim *claim = claim_new(session, queue);
  if (!claim) {
    al_op_fail(op, AL_NO_MEMORY, "claiming \"%s\"", queue);
    return NULL;
  }
  claim->channel = al_channel_take(&session->holder, claim_event, claim);
  if (!claim->channel) {
    free(claim);
    al_op_fail(op, AL_LIMIT, "all %d channels of the connection are in use; each lock takes two",
               session->holder.channel_max);
    return NULL;
  }
  claim->looks = looks;
  for (int i = 0; i < looks; i++) memcpy(claim->look[i], look[i], AL_NAME_SIZE);
  claim->next = session->claims;
  session->claims = claim;
  name_enter(claim);
  op->claim = claim;
  send_claim(claim);
  return claim;
}

void al_claim_release(al_claim *claim) {
  if (claim->state != AL_CLAIM_CLAIMING && claim->state != AL_CLAIM_HELD) return;
  claim->was_let_go = true;
  send_delete(claim); /* behind whatever is still under way on this channel: the broker takes them in order */
  enter(claim, AL_CLAIM_RELEASING);
}

void al_claim_delete_other(al_claim *claim, const char *queue) {
  amqp_queue_delete_t request = {.queue = amqp_cstring_bytes(queue)};
  claim->other_deletes++;
  al_channel_call(claim->channel, AMQP_QUEUE_DELETE_METHOD, &request);
}

int al_claim_confirm(al_claim *claim) {
  amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(claim->queue), .passive = 1};
  al_channel_call(claim->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
  return ++claim->asked;
}

void al_claim_ring(al_claim *claim, al_bell *bell, bool was_quick) {
  al_bell_stay(bell, was_quick);
  if (claim->state == AL_CLAIM_GONE)
    al_bell_leave(bell, claim->is_declared);
  else
    claim->bell = bell;
}

void al_claim_use(al_claim *claim) { claim->users++; }

void al_claim_leave(al_claim *claim) {
  if (claim) claim->users--;
}

void al_claims_down(al_session *session) {
  for (al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->state == AL_CLAIM_UNDOING && !claim->channel) enter(claim, AL_CLAIM_GONE);
}

void al_claims_sweep(al_session *session) {
  for (al_claim **at = &session->claims; *at;) {
    al_claim *claim = *at;
    bool is_due = claim->state == AL_CLAIM_UNDOING && !claim->channel && session->now >= claim->undo_at;
    if (is_due) undo(claim);
    if (claim->state == AL_CLAIM_GONE && claim->users == 0) {
      *at = claim->next;
      free(claim);
    } else {
      at = &claim->next;
    }
  }
}
