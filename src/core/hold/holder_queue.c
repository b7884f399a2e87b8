/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/holder_queue.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/field.h"
#include "core/base/name.h"
#include "core/hold/bolt.h"
#include "core/queue/declare.h"
#include "core/session/annex.h"
#include "core/session/op.h"
#include "core/session/probe.h"
#include "core/session/session.h"
#include "core/wire/link.h"

static const al_annex_kind names = {.size = sizeof(al_exclusive *)};
static const al_annex_kind gone = {.size = sizeof(uint64_t)}; /* their number, by the name "" */

static bool awaits(const al_exclusive *own, unsigned replies) { return own->awaits & replies; }

static void came(al_exclusive *own, unsigned reply) { own->awaits &= ~reply; }

static bool was_declared(const al_exclusive *own) { return !awaits(own, AL_REPLY_DECLARE); }

static bool is_bolted(const al_exclusive *own) { return own->bolt[0]; }

/* The bolt that the broker has not answered for yet; NULL: there is none, or the answer came. */
static const char *awaited_bolt(const al_exclusive *own) {
  if (is_bolted(own)) return was_declared(own) ? NULL : own->bolt;
  return awaits(own, AL_REPLY_DOOR_BOLT) ? own->door_bolt : NULL;
}

static al_bolt_verdict judge(const al_exclusive *own, const al_event *event) {
  const char *bolt = awaited_bolt(own);
  return bolt ? al_bolt_judge(event, bolt) : AL_BOLT_OTHER;
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

static void send_declare(al_exclusive *own) {
  al_session *session = own->claim.session;
  int64_t wall = (int64_t)(session->wall + (double)session->now / (double)AL_SECOND);
  int64_t retain = own->retain / AL_SECOND + (own->retain % AL_SECOND > 0);
  al_declare_held(own->channel, own->claim.queue, own->claim.ticket, session->settings.name, wall, retain);
}

static void send_bind(al_exclusive *own) {
  amqp_queue_bind_t bind = {.queue = amqp_cstring_bytes(own->claim.queue),
                            .exchange = amqp_cstring_bytes(AL_READERS_EXCHANGE),
                            .routing_key = amqp_cstring_bytes(own->key)};
  al_channel_call(own->channel, AMQP_QUEUE_BIND_METHOD, &bind);
}

/* Like al_channel_declare_passive(), but without an answer: the broker only closes the channel if the queue does not
 * exist. */
static void send_check(al_exclusive *own) {
  amqp_queue_declare_t check = {.queue = amqp_cstring_bytes(own->claim.queue), .passive = 1, .nowait = 1};
  al_link_method(own->channel->link, own->channel->number, AMQP_QUEUE_DECLARE_METHOD, &check);
}

/* Deletes no queue. The broker refuses to delete another's exclusive queue. A queue that is in use or has messages is
 * not deleted, because of if-unused and if-empty. Whatever else may stand there, the search before has found. */
static void delete_door(al_exclusive *own) {
  amqp_queue_delete_t request = {.queue = amqp_cstring_bytes(own->door), .if_unused = 1, .if_empty = 1};
  own->other_deletes++;
  al_channel_call(own->channel, AMQP_QUEUE_DELETE_METHOD, &request);
}

static void send_claim(al_exclusive *own) {
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(own->claim.queue),
                                  .consumer_tag = amqp_cstring_bytes(own->claim.ticket),
                                  .no_ack = 1};
  if (is_bolted(own)) al_bolt_shut(own->channel, own->bolt, own->claim.ticket);
  send_declare(own);
  al_channel_call(own->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
  if (own->key[0]) send_bind(own);
  if (own->door[0]) delete_door(own);
  if (awaits(own, AL_REPLY_DOOR_BOLT)) al_bolt_declare_passive(own->channel, own->door_bolt);
  if (own->beside[0]) al_channel_declare_passive(own->channel, own->beside);
}

static void exclusive_release(al_claim *claim);
static void exclusive_event(void *owner, al_channel *channel, const al_event *event);

/* ---- events of the claim's own channel -------------------------------------------------------------------------- */

static void settle(al_exclusive *own) {
  if (own->claim.state == AL_CLAIM_CLAIMING && !awaits(own, AL_REPLY_CLAIM)) al_claim_got(&own->claim);
}

/* Its queue is not ours any more. The rest of the queue, and the bolt, end with the channel. */
static void taken_away(al_exclusive *own, const char *why) {
  al_channel *channel = own->channel;
  own->channel = NULL;
  al_channel_close(channel);
  al_claim_lose(&own->claim, why);
  al_claim_enter(&own->claim, AL_CLAIM_GONE);
}

static void cancelled(al_exclusive *own) {
  came(own, AL_REPLY_CANCEL);
  if (own->claim.state == AL_CLAIM_RELEASING) return; /* our own deletion: delete-ok follows */
  taken_away(own, "its queue was deleted, but not by this client");
}

/* This basic.cancel may be about an earlier bolt that has expired. From 4.0 to 4.2 a channel that has consumed from
 * both then forgets the consumer of the second, which stays as long as the channel: so the channel must not be used
 * again. If it is about our bolt, a holder that was robbed of its queue has nothing left: so the broker is asked for
 * the queue. */
static void bolt_ended(al_exclusive *own) {
  own->channel->is_spoilt = true;
  if (own->claim.state == AL_CLAIM_HELD) al_claim_confirm(&own->claim);
}

static void consumer_ended(al_exclusive *own, const amqp_basic_cancel_t *cancel) {
  if (al_field_is(cancel->consumer_tag, own->claim.ticket))
    cancelled(own);
  else if (is_bolted(own) && al_bolt_is_tag(cancel->consumer_tag, own->claim.ticket))
    bolt_ended(own);
}

/* The door's own queue did not exist; but that proves nothing while its bolt is shut. */
static void looked_at_bolt(al_exclusive *own, const amqp_queue_declare_ok_t *ok) {
  came(own, AL_REPLY_DOOR_BOLT);
  if (ok->consumer_count == 0 || own->claim.state != AL_CLAIM_CLAIMING) return;
  al_claim_blame(&own->claim, AL_CONTENDED, "a writer holds the bolt of the door");
  exclusive_release(&own->claim);
}

static void declared(al_exclusive *own, const amqp_queue_declare_ok_t *ok) {
  bool ours = al_field_is(ok->queue, own->claim.queue);
  if (awaits(own, AL_REPLY_DOOR_BOLT) && al_field_is(ok->queue, own->door_bolt))
    looked_at_bolt(own, ok);
  else if (own->claim.state == AL_CLAIM_HELD)
    own->claim.confirmed++;
  else if (ours)
    came(own, AL_REPLY_DECLARE);
  else
    came(own, AL_REPLY_BESIDE);
  settle(own);
}

/* Our queue was consumed, as otherwise the channel would have been closed. If we released while claiming, consume-ok
 * comes behind this. The next client finds the bolt open, too; except for the bolt of a spoilt channel, which opens
 * when that channel ends. */
static void let_go(al_exclusive *own) {
  if (awaits(own, AL_REPLY_DELETE | AL_REPLY_BOLT)) return;
  if (awaits(own, AL_REPLY_CANCEL))
    al_channel_give_after(own->channel, own->claim.ticket);
  else
    al_channel_give(own->channel);
  own->channel = NULL;
  al_claim_enter(&own->claim, AL_CLAIM_GONE);
}

static bool delete_answered(al_exclusive *own) {
  bool was_through = !awaits(own, AL_REPLY_DOOR), is_other = own->other_deletes > 0;
  if (is_other) {
    own->other_deletes--;
    came(own, AL_REPLY_DOOR);
    settle(own);
  } else if (own->claim.state == AL_CLAIM_RELEASING) {
    came(own, AL_REPLY_DELETE);
    let_go(own);
  }
  return !is_other || !was_through;
}

/* True if the method was the claim's own business. */
static bool method_arrived(al_exclusive *own, const al_event *event) {
  switch (event->method) {
    case AMQP_CHANNEL_OPEN_OK_METHOD:
      return true;
    case AMQP_QUEUE_DECLARE_OK_METHOD: {
      const amqp_queue_declare_ok_t *ok = event->decoded;
      if (own->claim.state == AL_CLAIM_HELD && !al_field_is(ok->queue, own->claim.queue)) return false;
      declared(own, ok);
      return true;
    }
    case AMQP_BASIC_CONSUME_OK_METHOD:
      came(own, AL_REPLY_CONSUME);
      settle(own);
      return true;
    case AMQP_QUEUE_BIND_OK_METHOD:
      came(own, AL_REPLY_BIND);
      settle(own);
      return true;
    case AMQP_BASIC_CANCEL_METHOD:
      consumer_ended(own, event->decoded);
      return true;
    case AMQP_BASIC_CANCEL_OK_METHOD:
      came(own, AL_REPLY_BOLT);
      let_go(own);
      return true;
    case AMQP_QUEUE_DELETE_OK_METHOD:
      return delete_answered(own);
    default:
      return false;
  }
}

/* Sets the code of a claim that was refused before it was held. */
static void refused(al_exclusive *own, const al_event *event) {
  al_code code = al_event_code(event, AL_CONTENDED, AL_REMOVED);
  /* The door may be deleted, but is in use: another caller on this very connection has just shut it. */
  if (event->method == AMQP_QUEUE_DELETE_METHOD && event->reply_code == AMQP_PRECONDITION_FAILED)
    code = AL_CONTENDED;
  /* No request of ours was refused. The former user of this channel had kept a message for too long. */
  if (event->method == 0 && event->reply_code == AMQP_PRECONDITION_FAILED) code = AL_CONTENDED;
  if (judge(own, event) != AL_BOLT_OTHER) code = AL_CONTENDED;
  al_claim_blame(&own->claim, code, event->text);
}

/* If the bolt is denied: a claim that has made nothing yet begins again without it. A reader must search again. */
static bool goes_on_without(al_exclusive *own, const al_event *event) {
  al_session *session = own->claim.session;
  if (judge(own, event) != AL_BOLT_REFUSED) return false;
  al_bolt_deny(session, awaited_bolt(own), event->text);
  own->learned_denial = !is_bolted(own);
  if (!is_bolted(own) || own->claim.state != AL_CLAIM_CLAIMING) return false;
  own->channel = al_channel_take(&session->holder, exclusive_event, own);
  if (!own->channel) return false;
  own->bolt[0] = '\0';
  came(own, AL_REPLY_BOLT);
  send_claim(own);
  return true;
}

/* A holder's question, or its release, found that our queue was removed. What was left of ours went with the
 * channel. */
static bool was_robbed(const al_exclusive *own, const al_event *event) {
  al_claim_state state = own->claim.state;
  bool has_asked = state == AL_CLAIM_HELD || (state == AL_CLAIM_RELEASING && is_bolted(own));
  return has_asked && was_declared(own) && !awaits(own, AL_REPLY_BESIDE) &&
         event->method == AMQP_QUEUE_DECLARE_METHOD && al_event_is_absent(event);
}

static void channel_closed(al_exclusive *own, const al_event *event) {
  if (goes_on_without(own, event)) return;
  bool was_claiming = own->claim.state == AL_CLAIM_CLAIMING, was_held = own->claim.state == AL_CLAIM_HELD;
  /* Our own queue was not declared. So the refusal is about its declare, or about its bolt, which comes before. */
  bool made_nothing = !was_declared(own) && (event->method == AMQP_QUEUE_DECLARE_METHOD ||
                                             event->method == AMQP_BASIC_CONSUME_METHOD);
  bool is_gone = made_nothing || was_robbed(own, event);
  own->channel = NULL;
  if (was_claiming) refused(own, event);
  if (was_held) al_claim_lose(&own->claim, event->text);
  if (is_gone)
    al_claim_enter(&own->claim, AL_CLAIM_GONE);
  else
    al_undo_begin(&own->undo, &own->claim);
  /* A 404 is about our own queue: all other users of this channel declare, or delete, and for these it makes no
   * difference whether the queue exists. */
  if (own->on && was_held && !al_event_is_absent(event))
    own->on(own->on_op, event); /* it may release the claim, which is in order by now */
}

static bool is_retained(const al_exclusive *own) {
  return own->retained_until != AL_NEVER && own->claim.state == AL_CLAIM_HELD;
}

/* AL_NEVER: it is taken again, or gone. Until then its session is told of what comes, as others wait for the end. */
static void retain_until(al_exclusive *own, int64_t until) {
  own->claim.session->retained += (until != AL_NEVER) - (own->retained_until != AL_NEVER);
  own->retained_until = until;
}

/* Most messages are probes, by us or by other software, or were meant for the previous user of the channel. */
static void message_arrived(al_exclusive *own, const al_content *content) {
  if (strcmp(content->consumer_tag, own->claim.ticket) != 0) return;
  bool is_awaited = strcmp(content->type, AL_TYPE_WAITING) == 0;
  if (is_awaited) own->awaited_at = own->claim.session->now;
  if (is_retained(own)) {
    al_claim_release(&own->claim);
    return;
  }
  if (is_awaited) al_bell_want_token(own->bell);
  if (strcmp(content->type, AL_TYPE_REVOKE) == 0) al_claim_revoke(&own->claim);
  if (strcmp(content->type, AL_TYPE_TOKEN) != 0) return;
  own->woken++;
  al_claim_notify(&own->claim);
}

static void exclusive_event(void *owner, al_channel *channel, const al_event *event) {
  al_exclusive *own = owner;
  (void)channel;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      if (!method_arrived(own, event) && own->on) own->on(own->on_op, event);
      break;
    case AL_EVENT_CONTENT:
      message_arrived(own, event->content);
      return;
    case AL_EVENT_CLOSED:
      channel_closed(own, event);
      break;
    case AL_EVENT_DOWN:
      own->channel = NULL;
      al_claim_lose(&own->claim, own->claim.link->why);
      al_claim_enter(&own->claim, AL_CLAIM_GONE);
      break;
  }
  al_claim_notify(&own->claim);
}

/* ---- asking on another channel ---------------------------------------------------------------------------------- */

/* A refusal other than 404 and 405 says nothing about the queue: the broker has answered on this connection, on which
 * the claim is held. */
static void check_answered(al_claim *claim, const al_event *event) {
  bool is_refused = event->kind == AL_EVENT_CLOSED;
  bool is_lost = is_refused && (al_event_is_absent(event) || event->reply_code == AMQP_RESOURCE_LOCKED);
  claim->confirmed = is_refused ? claim->asked : claim->confirmed + 1;
  if (is_lost && claim->state == AL_CLAIM_HELD) taken_away((al_exclusive *)claim, event->text);
}

/* A holder that has been told that the lock is its own keeps the bolt shut until it is told that the lock is lost. So
 * the question goes to another channel: a refusal closes the channel, and with the channel of the claim the bolt would
 * open. The question goes to the claim's own channel where there is no bolt, or nobody was told yet; and where no other
 * channel is left, because a lock whose holder may not ask is worse than one whose loss is told a round trip late. */
static bool exclusive_confirm(al_claim *claim) {
  al_exclusive *own = (al_exclusive *)claim;
  if (is_bolted(own) && claim->is_counted && al_check_ask(&own->check)) return true;
  al_channel_declare_passive(own->channel, claim->queue);
  return true;
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

/* Written behind whatever is still under way on this channel: the broker takes requests in order. If our queue was
 * removed, the check closes the channel, and so ends what is left of the queue. Where the bolt is on the same node,
 * that happens before others find the bolt open. */
static void exclusive_release(al_claim *claim) {
  al_exclusive *own = (al_exclusive *)claim;
  if (is_bolted(own)) send_check(own);
  al_channel_delete(own->channel, claim->queue);
  if (is_bolted(own)) al_bolt_open(own->channel, claim->ticket);
  al_claim_enter(claim, AL_CLAIM_RELEASING);
}

/* Each retained claim has a channel. */
#define RETAINED_MOST 16

/* The time is counted from the claim on: a client that asks by passive declares cannot end a retention. */
static bool exclusive_retain(al_claim *claim, int64_t nanoseconds) {
  al_exclusive *own = (al_exclusive *)claim;
  al_session *session = claim->session;
  int64_t until = al_earlier(al_deadline_after(own->began_at, nanoseconds), AL_NEVER - 1);
  bool is_wanted = claim->is_revoked || own->awaited_at != AL_NEVER;
  if (is_wanted || session->closed || session->retained >= RETAINED_MOST || until <= session->now)
    return false;
  retain_until(own, until);
  al_bell_retain(own->bell);
  claim->was_let_go = true;
  claim->is_counted = false;
  claim->expires_at = AL_NEVER;
  al_claims_sweep_by(session, until);
  return true;
}

static int64_t exclusive_sweep(al_claim *claim) {
  al_exclusive *own = (al_exclusive *)claim;
  if (is_retained(own) && claim->session->now < own->retained_until) return own->retained_until;
  if (is_retained(own)) al_claim_release(claim);
  return al_undo_sweep(&own->undo);
}

static void exclusive_down(al_claim *claim) { al_undo_down(&((al_exclusive *)claim)->undo); }

static void exclusive_gone(al_claim *claim) {
  al_exclusive *own = (al_exclusive *)claim;
  retain_until(own, AL_NEVER);
  uint64_t *count = al_annex_use(claim->session, &gone, "");
  if (count) ++*count;
  al_annex_drop(claim->session, &names, claim->queue);
  al_check_drop(&own->check);
  al_bell_leave(own->bell, was_declared(own));
  own->bell = NULL;
  if (own->wakes[0] && was_declared(own)) al_prober_ring(claim->session, own->wakes);
}

static void exclusive_free(al_claim *claim) {
  al_bell_leave(((al_exclusive *)claim)->bell, false);
  free(claim);
}

static const al_move moves[] = {
    {AL_CLAIM_CLAIMING, AL_CLAIM_HELD},      /* the broker has sent all replies of AL_REPLY_CLAIM */
    {AL_CLAIM_CLAIMING, AL_CLAIM_RELEASING}, /* the door's bolt has a consumer: contended; or a release */
    {AL_CLAIM_CLAIMING, AL_CLAIM_UNDOING},   /* it closes the channel (code says why) */
    {AL_CLAIM_HELD, AL_CLAIM_RELEASING},     /* a release */
    {AL_CLAIM_HELD, AL_CLAIM_UNDOING},       /* it closes the channel, and our queue may exist: lost */
    {AL_CLAIM_RELEASING, AL_CLAIM_UNDOING},  /* it closes the channel, and our queue may exist */
    /* CLAIMING: it closes the channel because of the declare of the bolt or of the queue, so nothing was made (code
     * says why). HELD: it sends basic.cancel of our consumer, as the queue was deleted, or a check finds that the queue
     * is not ours: lost. RELEASING: it has sent delete-ok of the queue and cancel-ok of the bolt. HELD or RELEASING: it
     * closes the channel because the queue does not exist. UNDOING: undo.h. Any: the connection is lost */
    {AL_ANY, AL_CLAIM_GONE},
    AL_MOVES_END};

static const al_claim_kind exclusive_kind = {.moves = moves,
                                             .release = exclusive_release,
                                             .retain = exclusive_retain,
                                             .confirm = exclusive_confirm,
                                             .sweep = exclusive_sweep,
                                             .down = exclusive_down,
                                             .gone = exclusive_gone,
                                             .free = exclusive_free};

/* A reader's queue is nobody else's, so it has no bolt: the reader checks the door's bolt. A writer that becomes a
 * reader has shut the door's bolt itself. */
static void plan_bolt(al_exclusive *own, const al_exclusive_plan *plan) {
  char bolt[AL_NAME_SIZE];
  if (plan->key && !plan->door) return;
  al_name(bolt, AL_SUFFIX_BOLT, plan->door ? plan->door : plan->queue);
  if (!al_bolt_is_needed(own->claim.session, bolt)) return;
  memcpy(plan->door ? own->door_bolt : own->bolt, bolt, sizeof bolt);
}

static al_exclusive *exclusive_new(al_session *session, const al_exclusive_plan *plan) {
  al_exclusive *own = calloc(1, sizeof *own);
  if (!own) return NULL;
  al_claim_init(&own->claim, &exclusive_kind, session, &session->holder, plan->queue);
  al_check_init(&own->check, &own->claim, check_answered);
  if (plan->ticket) memcpy(own->claim.ticket, plan->ticket, sizeof own->claim.ticket);
  if (plan->beside) snprintf(own->beside, sizeof own->beside, "%s", plan->beside);
  if (plan->key) snprintf(own->key, sizeof own->key, "%s", plan->key);
  if (plan->wakes) snprintf(own->wakes, sizeof own->wakes, "%s", plan->wakes);
  if (plan->door) snprintf(own->door, sizeof own->door, "%s", plan->door);
  plan_bolt(own, plan);
  own->retain = plan->retain;
  own->began_at = session->now;
  own->awaited_at = own->retained_until = AL_NEVER;
  own->awaits = AL_REPLY_DECLARE | AL_REPLY_CONSUME | AL_REPLY_DELETE | AL_REPLY_CANCEL;
  if (plan->key) own->awaits |= AL_REPLY_BIND;
  if (plan->door) own->awaits |= AL_REPLY_DOOR;
  if (plan->beside) own->awaits |= AL_REPLY_BESIDE;
  if (own->door_bolt[0]) own->awaits |= AL_REPLY_DOOR_BOLT;
  if (is_bolted(own)) own->awaits |= AL_REPLY_BOLT;
  return own;
}

al_exclusive *al_exclusive_begin(al_op *op, const al_exclusive_plan *plan) {
  al_session *session = op->session;
  assert(!al_exclusive_find(session, plan->queue));
  al_exclusive *own = exclusive_new(session, plan);
  al_exclusive **place = own ? al_annex_use(session, &names, plan->queue) : NULL;
  if (!place) {
    free(own);
    al_op_fail(op, AL_NO_MEMORY, "claiming \"%s\"", plan->queue);
    return NULL;
  }
  own->channel = al_channel_take(&session->holder, exclusive_event, own);
  if (!own->channel) {
    al_annex_drop(session, &names, plan->queue);
    free(own);
    al_op_fail_channel(op, &session->holder,
                       "all %d channels of the connection are in use; a lock takes one, and waiting for a "
                       "lock takes one more",
                       session->holder.channel_max);
    return NULL;
  }
  *place = own;
  al_claim_list(&own->claim);
  al_op_watch(op, &own->claim);
  send_claim(own);
  return own;
}

void al_exclusive_delete_other(al_exclusive *own, const char *queue) {
  own->other_deletes++;
  al_channel_delete(own->channel, queue);
}

void al_exclusive_ring(al_exclusive *own, al_bell *bell, bool was_quick, bool may_exist) {
  al_bell_settle(bell, was_quick, may_exist);
  if (own->claim.state == AL_CLAIM_GONE)
    al_bell_leave(bell, was_declared(own));
  else
    own->bell = bell;
  if (own->bell && own->awaited_at != AL_NEVER) al_bell_want_token(bell);
}

al_exclusive *al_exclusive_find(const al_session *session, const char *queue) {
  al_exclusive **place = al_annex_find(session, &names, queue);
  return place ? *place : NULL;
}

al_exclusive *al_exclusive_retained(const al_session *session, const char *queue) {
  al_exclusive *own = al_exclusive_find(session, queue);
  return own && is_retained(own) ? own : NULL;
}

void al_exclusive_take(al_exclusive *own) {
  retain_until(own, AL_NEVER);
  own->claim.was_let_go = false;
  al_claim_use(&own->claim);
}

uint64_t al_exclusive_gone(const al_session *session) {
  const uint64_t *count = al_annex_find(session, &gone, "");
  return count ? *count : 0;
}

al_exclusive *al_exclusive_find_bound(al_session *session, const char *key) {
  for (al_claim *claim = session->claims; claim; claim = claim->next) {
    al_exclusive *own = (al_exclusive *)claim;
    bool is_ours = claim->state == AL_CLAIM_CLAIMING || claim->state == AL_CLAIM_HELD;
    if (claim->kind == &exclusive_kind && is_ours && strcmp(own->key, key) == 0) return own;
  }
  return NULL;
}
