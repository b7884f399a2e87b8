/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/drain.h"

#include <assert.h>
#include <string.h>

#include "core/base/field.h"
#include "core/base/moves.h"
#include "core/queue/inspect.h"
#include "core/session/probe.h"
#include "core/session/session.h"
#include "core/tokens/permit.h"

#define HIGHEST_PRIORITY INT32_MAX

/* A client cancels its consumer before it gives back its message. Between the two, a check sees neither the
 * consumer nor a ready message. So a drain is sure to be alone only if that lasts for this time. */
#define OVERLOOKED (500 * AL_MILLISECOND)

/* The time for acknowledgements to reach their queue. No answer tells that they have; see drain.h. */
#define ARRIVAL (100 * AL_MILLISECOND)

static const al_move moves[] = {
    {AL_DRAIN_OUT, AL_DRAIN_SUBSCRIBING},      /* begin: qos, consume */
    {AL_DRAIN_SUBSCRIBING, AL_DRAIN_DRAINING}, /* consume-ok; a check begins */
    {AL_DRAIN_DRAINING, AL_DRAIN_SUBSCRIBING}, /* go on: qos, consume from another queue */
    {AL_DRAIN_DRAINING, AL_DRAIN_LEAVING},     /* cancel, ack or nack of all it has, qos */
    {AL_DRAIN_LEAVING, AL_DRAIN_LINGERING},    /* qos-ok: the broker's channel has acknowledged */
    /* LEAVING: the same, if nothing was acknowledged. LINGERING, after a tenth of a second. Any: closed or cancelled by
     * the broker, link down: the operation has failed. Or a drop */
    {AL_ANY, AL_DRAIN_OUT},
    AL_MOVES_END};

static void go(al_drain *drain, al_drain_state state) {
  al_move_check(moves, drain->state, state);
  drain->state = state;
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

static void send(const al_drain *drain, amqp_method_number_t method, void *decoded) {
  al_link_method(drain->channel->link, drain->channel->number, method, decoded);
}

/* The first call sets the room. A later call changes nothing: its qos-ok tells that the broker's channel has
 * processed all that was sent before. */
static void settle(al_drain *drain) {
  amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)drain->room};
  al_channel_call(drain->channel, AMQP_BASIC_QOS_METHOD, &qos);
}

static void consume(al_drain *drain) {
  amqp_table_entry_t priority = al_field_number("x-priority", HIGHEST_PRIORITY);
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(drain->queue),
                                  .consumer_tag = amqp_cstring_bytes(drain->tag),
                                  .arguments = {.num_entries = 1, .entries = &priority}};
  al_channel_call(drain->channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

static void cancel_one(const al_drain *drain, const char *tag) {
  amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(tag), .nowait = 1};
  send(drain, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

static void cancel(const al_drain *drain) {
  if (drain->queue_before) cancel_one(drain, drain->tag_before);
  cancel_one(drain, drain->tag);
}

static void acknowledge(al_drain *drain, uint64_t tag, bool multiple) {
  amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = multiple};
  drain->has_acknowledged = true;
  send(drain, AMQP_BASIC_ACK_METHOD, &ack);
}

/* All messages, also those on their way. */
static void give_back(const al_drain *drain) {
  amqp_basic_nack_t nack = {.delivery_tag = 0, .multiple = 1, .requeue = 1};
  send(drain, AMQP_BASIC_NACK_METHOD, &nack);
}

static void look(al_drain *drain) {
  drain->look = AL_DRAIN_LOOKS;
  drain->looked_at = drain->op->session->now;
  al_op_ask(drain->op);
  al_channel_declare_passive(drain->channel, drain->queue);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void out(al_drain *drain) {
  drain->channel = NULL;
  go(drain, AL_DRAIN_OUT);
}

static void fail(al_drain *drain, al_code code, const char *queue, const char *text) {
  out(drain);
  al_op_fail(drain->op, code, "queue \"%s\": %s", queue, text);
}

bool al_drain_is_bare(const al_drain *drain) { return drain->ready == 0 && drain->consumers > 0; }

bool al_drain_is_sole(const al_drain *drain) { return drain->ready == 0 && drain->consumers == 1; }

bool al_drain_is_alone(const al_drain *drain) { return drain->looked_at - OVERLOOKED >= drain->alone_since; }

static void note_look(al_drain *drain) {
  int came = drain->count + drain->thrown;
  if (!al_drain_is_sole(drain))
    drain->alone_since = AL_NEVER;
  else if (drain->alone_since == AL_NEVER || drain->alone_with != came)
    drain->alone_since = drain->op->session->now;
  drain->alone_with = came;
  drain->look = AL_DRAIN_LOOKED;
}

static void end(al_drain *drain) {
  al_channel_close(drain->channel);
  out(drain);
}

/* Messages that arrived late go back at once, so that other consumers get them during the wait. */
static void linger(al_drain *drain) {
  if (!drain->has_acknowledged) {
    end(drain);
    return;
  }
  if (drain->came_late) give_back(drain);
  go(drain, AL_DRAIN_LINGERING);
  drain->ends_at = drain->op->session->now + ARRIVAL;
}

static void qos_answered(al_drain *drain) {
  if (drain->channel->unanswered > 0)
    return; /* not the last qos: when channels are short, the link's pulse sends one on this channel, too */
  if (drain->state == AL_DRAIN_LEAVING) {
    linger(drain);
  } else if (drain->look == AL_DRAIN_SETTLES) {
    note_look(drain);
  } else {
    return;
  }
  al_op_answered(drain->op);
  al_op_step(drain->op);
}

static void cancelled(al_drain *drain, const char *queue) {
  al_channel_close(drain->channel);
  if (drain->is_doomed)
    out(drain);
  else
    fail(drain, AL_LOST, queue,
         "it was deleted, or its node went down, or messages taken from it were held for too long");
}

static void method_arrived(al_drain *drain, const al_event *event) {
  const amqp_basic_cancel_t *notice = event->decoded;
  const amqp_queue_declare_ok_t *declared = event->decoded;
  if (event->method == AMQP_BASIC_CONSUME_OK_METHOD && drain->state == AL_DRAIN_SUBSCRIBING) {
    go(drain, AL_DRAIN_DRAINING);
    look(drain);
  } else if (event->method == AMQP_QUEUE_DECLARE_OK_METHOD && drain->look == AL_DRAIN_LOOKS &&
             drain->state == AL_DRAIN_DRAINING) {
    drain->ready = al_inspect_number(declared->message_count);
    drain->consumers = al_inspect_number(declared->consumer_count);
    drain->look = AL_DRAIN_SETTLES;
    settle(drain);
  } else if (event->method == AMQP_BASIC_QOS_OK_METHOD) {
    qos_answered(drain);
  } else if (event->method == AMQP_BASIC_CANCEL_METHOD) {
    if (al_field_is(notice->consumer_tag, drain->tag))
      cancelled(drain, drain->queue);
    else if (drain->queue_before && al_field_is(notice->consumer_tag, drain->tag_before))
      cancelled(drain, drain->queue_before);
  }
}

static bool is_too_many(al_drain *drain, const al_content *content) {
  if (!drain->sifts) return false;
  if (drain->count >= drain->nominal) return true;
  return strcmp(content->type, AL_TYPE_PERMIT) == 0 && !al_ids_add(&drain->ids, content->message_id);
}

/* The nack of all messages may have included this one, or not. That is settled after the broker's answer: by
 * another nack, or by closing the channel. */
static void late_arrived(al_drain *drain) {
  drain->came_late = true;
  if (drain->state == AL_DRAIN_LINGERING) give_back(drain);
}

static void message_arrived(al_drain *drain, const al_content *content) {
  bool is_ours = strcmp(content->consumer_tag, drain->tag) == 0; /* or for the channel's last owner */
  int64_t number = al_permit_reading(content);
  if (!is_ours) return;
  if (drain->state >= AL_DRAIN_LEAVING) {
    late_arrived(drain);
    return;
  }
  if (is_too_many(drain, content)) {
    acknowledge(drain, content->delivery_tag, false);
    drain->thrown++;
  } else {
    drain->last = content->delivery_tag;
    drain->count++;
  }
  if (number > 0) al_fence_links_see(drain->op->session->fence_links, drain->queue, number);
  if (drain->look == AL_DRAIN_RESTS) drain->op->wake = AL_NEVER;
  al_op_step(drain->op);
}

/* LOST: the messages taken from the queue are lost. The broker closes the channel on its own, or answers a check
 * with 404. */
static al_code refusal(const al_event *event) {
  bool is_gone = event->reply_code == AMQP_NOT_FOUND && event->method != AMQP_BASIC_CONSUME_METHOD;
  if (event->method == 0 || is_gone) return AL_LOST;
  return al_event_code(event, AL_SQUATTED, AL_NOT_FOUND);
}

/* The broker closes the channel without a request of ours if a message was held for too long. With two queues that
 * is a message of the first queue, as those were held for longer. */
static void closed(al_drain *drain, const al_event *event) {
  bool is_first = event->method == 0 && drain->queue_before;
  fail(drain, refusal(event), is_first ? drain->queue_before : drain->queue, event->text);
}

static void collector_event(void *owner, al_channel *channel, const al_event *event) {
  al_drain *drain = owner;
  switch (event->kind) {
    case AL_EVENT_METHOD:
      method_arrived(drain, event);
      break;
    case AL_EVENT_CONTENT:
      message_arrived(drain, event->content);
      break;
    case AL_EVENT_CLOSED:
      closed(drain, event);
      break;
    case AL_EVENT_DOWN:
      out(drain);
      al_op_fail_link(drain->op, channel->link);
      break;
  }
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

static void arrive(al_drain *drain, const char *queue) {
  drain->queue = queue;
  go(drain, AL_DRAIN_SUBSCRIBING);
  al_session_ticket(drain->op->session, drain->tag);
  al_op_ask(drain->op);
  settle(drain);
  consume(drain);
}

void al_drain_begin(al_drain *drain, al_op *op, const char *queue, int room) {
  *drain = (al_drain){.op = op, .room = room, .alone_since = AL_NEVER, .wait = AL_BACKOFF_SLOT};
  drain->channel = al_channel_take(&op->session->holder, collector_event, drain);
  if (drain->channel)
    arrive(drain, queue);
  else
    al_op_fail_channel(op, &op->session->holder, "no channel is left on the connection");
}

void al_drain_go_on(al_drain *drain, const char *queue) {
  assert(al_drain_is_full(drain) && !drain->sifts);
  drain->queue_before = drain->queue;
  memcpy(drain->tag_before, drain->tag, sizeof drain->tag);
  drain->count = 0;
  drain->look = AL_DRAIN_RESTS;
  drain->alone_since = AL_NEVER;
  drain->wait = AL_BACKOFF_SLOT;
  arrive(drain, queue);
}

void al_drain_sift(al_drain *drain, al_op *op, const char *queue, int nominal) {
  al_drain_begin(drain, op, queue, nominal < AL_DRAIN_MOST ? nominal + 1 : AL_DRAIN_MOST);
  if (op->done) return;
  drain->sifts = true;
  drain->nominal = nominal;
  if (!al_ids_init(&drain->ids, (size_t)nominal))
    al_op_fail(op, AL_NO_MEMORY, "collecting from \"%s\"", queue);
}

bool al_drain_is_full(const al_drain *drain) {
  return drain->state == AL_DRAIN_DRAINING && drain->count == drain->room;
}

bool al_drain_poll_look(al_drain *drain) {
  if (drain->op->done || drain->state != AL_DRAIN_DRAINING) return false;
  if (drain->look == AL_DRAIN_RESTS && al_op_is_woken(drain->op)) look(drain);
  return drain->look == AL_DRAIN_LOOKED;
}

void al_drain_rest(al_drain *drain, int64_t until) {
  al_session *session = drain->op->session;
  int64_t wake = session->now + al_backoff_next(&drain->wait, &session->random);
  drain->look = AL_DRAIN_RESTS;
  drain->op->wake = wake < until ? wake : until;
}

static void leave(al_drain *drain) {
  go(drain, AL_DRAIN_LEAVING);
  drain->look = AL_DRAIN_RESTS;
  al_op_ask(drain->op);
  settle(drain);
}

void al_drain_acknowledge(al_drain *drain) {
  cancel(drain);
  if (drain->count > 0) acknowledge(drain, drain->last, true);
  leave(drain);
}

void al_drain_return(al_drain *drain) {
  cancel(drain);
  give_back(drain);
  leave(drain);
}

bool al_drain_is_out(const al_drain *drain) { return drain->state == AL_DRAIN_OUT; }

bool al_drain_poll_settled(const al_drain *drain) {
  return drain->state == AL_DRAIN_LINGERING || al_drain_is_out(drain);
}

bool al_drain_poll_end(al_drain *drain) {
  if (drain->state == AL_DRAIN_LINGERING) {
    drain->op->wake = drain->ends_at;
    if (drain->op->session->now >= drain->ends_at) end(drain);
  }
  return al_drain_is_out(drain);
}

void al_drain_doom(al_drain *drain) { drain->is_doomed = true; }

void al_drain_drop(al_drain *drain) {
  if (!drain->channel) return;
  if (drain->state == AL_DRAIN_DRAINING && !drain->is_doomed) {
    cancel(drain);
    give_back(drain);
  }
  al_channel_close(drain->channel);
  out(drain);
}
