/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/fence_maker.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/base/field.h"
#include "core/base/name.h"
#include "core/queue/declare.h"
#include "core/session/fence_links.h"
#include "core/session/prober.h"
#include "core/session/session.h"
#include "core/wire/connection.h"

/* The states, in the order of their first answer. */
static void entering(al_fence_maker *maker, const al_event *event);
static void doubting(al_fence_maker *maker, const al_event *event);
static void looking(al_fence_maker *maker, const al_event *event);
static void peeking(al_fence_maker *maker, const al_event *event);
static void asking(al_fence_maker *maker, const al_event *event);
static void removing(al_fence_maker *maker, const al_event *event);
static void still_alone(al_fence_maker *maker, const al_event *event);
static void making(al_fence_maker *maker, const al_event *event);
static void trying(al_fence_maker *maker, const al_event *event);
static void finishing(al_fence_maker *maker, const al_event *event);

/* ---- events ----------------------------------------------------------------------------------------------------- */

static al_link *link_of(const al_fence_maker *maker) { return &maker->op->session->fence_links->maker; }

static void maker_event(void *owner, al_channel *channel, const al_event *event) {
  al_fence_maker *maker = owner;
  (void)channel;
  if (event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN) maker->channel = NULL;
  if (event->kind == AL_EVENT_DOWN) return; /* all operations are stepped afterwards */
  if (maker->next) maker->next(maker, event);
  if (!maker->op->done) al_op_step(maker->op);
}

/* A channel of the maker's connection. NULL: the operation has failed. */
static al_channel *channel_of(al_fence_maker *maker) {
  if (maker->channel) return maker->channel;
  al_channel *channel = al_channel_take(link_of(maker), maker_event, maker);
  if (!channel)
    al_op_fail_channel(maker->op, link_of(maker), "no channel is left to make \"%s\" on", maker->fence);
  else
    maker->channel = channel;
  return channel;
}

static void again_after_pause(al_fence_maker *maker, void (*again)(al_fence_maker *), const char *why) {
  al_session *session = maker->op->session;
  snprintf(maker->why, sizeof maker->why, "%.159s", why);
  maker->next = NULL;
  maker->again = again;
  maker->again_at = session->now + al_backoff_next(&maker->pause, &session->random);
}

/* The end of the channel that no state expects. */
static void refused(al_fence_maker *maker, const al_event *event) {
  al_code code = al_event_code(event, AL_SQUATTED, AL_UNAVAILABLE);
  al_op_fail(maker->op, code, "making \"%s\": %s", maker->fence, event->text);
}

static bool is_method(const al_event *event, amqp_method_number_t method) {
  return event->kind == AL_EVENT_METHOD && event->method == method;
}

/* Begins a state, `next`, which handles the answer to what is now sent. Returns the channel to send it on; NULL: the
 * operation has failed. */
static al_channel *begin(al_fence_maker *maker, void (*next)(al_fence_maker *, const al_event *)) {
  maker->again = NULL;
  maker->next = next;
  return channel_of(maker);
}

/* ---- the states -------------------------------------------------------------------------------------------------- */

static void enter(al_fence_maker *maker) {
  char queue[AL_NAME_SIZE];
  al_channel *channel = begin(maker, entering);
  if (!channel) return;
  al_name(queue, AL_SUFFIX_FENCE_MAKER, maker->fence);
  al_declare_scratch(channel, queue);
}

static void doubt(al_fence_maker *maker) {
  char queue[AL_NAME_SIZE];
  al_channel *channel = begin(maker, doubting);
  if (!channel) return;
  al_name(queue, AL_SUFFIX_FENCE_MAKER, maker->fence);
  al_channel_declare_passive(channel, queue);
}

static void look(al_fence_maker *maker) {
  al_channel *channel = begin(maker, looking);
  if (!channel) return;
  al_channel_declare_passive(channel, maker->fence);
}

static void peek(al_fence_maker *maker) {
  al_channel *channel = begin(maker, peeking);
  if (!channel) return;
  al_channel_peek(channel, maker->fence);
}

static void ask(al_fence_maker *maker) {
  char queue[AL_NAME_SIZE];
  al_channel *channel = begin(maker, asking);
  if (!channel) return;
  al_name(queue, AL_SUFFIX_FENCE_UNFINISHED, maker->fence);
  al_channel_declare_passive(channel, queue);
}

static void delete_fence(al_fence_maker *maker) {
  al_channel *channel = begin(maker, removing);
  if (!channel) return;
  al_channel_delete(channel, maker->fence);
}

/* The message's base is the time in microseconds: larger than all numbers of an earlier fence, unless a clock went
 * back, or more numbers than microseconds were drawn. */
static int64_t base_of(const al_fence_maker *maker) {
  int64_t now = al_session_microseconds(maker->op->session);
  return now > maker->least ? now : maker->least;
}

static void publish(al_fence_maker *maker, al_channel *channel) {
  amqp_basic_publish_t publish = {.routing_key = amqp_cstring_bytes(maker->fence), .mandatory = 1};
  amqp_table_entry_t base = al_field_number(AL_HEADER_BASE, base_of(maker));
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .headers = {.num_entries = 1, .entries = &base},
                                        .delivery_mode = AMQP_DELIVERY_PERSISTENT};
  amqp_frame_t header = {.frame_type = AMQP_FRAME_HEADER, .channel = (amqp_channel_t)channel->number};
  header.payload.properties.class_id = AMQP_BASIC_CLASS;
  header.payload.properties.decoded = &properties;
  al_link_method(channel->link, channel->number, AMQP_BASIC_PUBLISH_METHOD, &publish);
  al_link_send(channel->link, &header);
}

/* The maker's queue is declared once more, in the same write. Before 4.3 the end of another client's queue may have
 * removed it (see bolt.h), and another client may be at it by now: that client's queue closes the channel, so nothing
 * behind it is done. */
static void make(al_fence_maker *maker) {
  char queue[AL_NAME_SIZE], unfinished[AL_NAME_SIZE];
  amqp_confirm_select_t select = {0};
  al_channel *channel = begin(maker, still_alone);
  if (!channel) return;
  al_name(queue, AL_SUFFIX_FENCE_MAKER, maker->fence);
  al_name(unfinished, AL_SUFFIX_FENCE_UNFINISHED, maker->fence);
  al_declare_scratch(channel, queue);
  al_declare_unfinished(channel, unfinished);
  al_declare_fence(channel, maker->fence);
  al_channel_call(channel, AMQP_CONFIRM_SELECT_METHOD, &select);
  publish(maker, channel);
}

static void try_out(al_fence_maker *maker) {
  al_channel *channel = begin(maker, trying);
  if (!channel) return;
  for (maker->asked = 0; maker->tries + maker->asked < AL_FENCE_TRIES; maker->asked++)
    al_channel_peek(channel, maker->fence);
}

static void finish(al_fence_maker *maker) {
  char queue[AL_NAME_SIZE];
  al_channel *channel = begin(maker, finishing);
  if (!channel) return;
  al_name(queue, AL_SUFFIX_FENCE_UNFINISHED, maker->fence);
  al_channel_delete(channel, queue);
}

static void entering(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DECLARE_OK_METHOD))
    look(maker);
  else if (event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_RESOURCE_LOCKED)
    doubt(maker);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

/* The broker also refuses the name of a queue that is not exclusive; but such a queue can be declared passively. */
static void doubting(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DECLARE_OK_METHOD))
    al_op_fail(maker->op, AL_SQUATTED, "\"%s-maker\" is in the way: a queue that is not exclusive",
               maker->fence);
  else if (event->kind == AL_EVENT_CLOSED)
    again_after_pause(maker, enter, "another client is making it");
}

static void looking(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DECLARE_OK_METHOD))
    peek(maker);
  else if (event->kind == AL_EVENT_CLOSED && al_event_is_absent(event))
    make(maker);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

static void done(al_fence_maker *maker) {
  al_session *session = maker->op->session;
  al_channel *channel = maker->channel;
  maker->is_made = true;
  maker->next = NULL;
  session->fence_links->making = NULL;
  maker->channel = NULL;
  al_channel_give(channel);
  al_connection_close(link_of(maker), al_deadline_after(session->now, session->settings.timeout));
}

static void lost(al_fence_maker *maker) {
  if (maker->mends)
    delete_fence(maker);
  else
    ask(maker);
}

static void is_empty(al_fence_maker *maker, void (*again)(al_fence_maker *),
                     void (*give_up)(al_fence_maker *)) {
  al_session *session = maker->op->session;
  if (maker->empty_since == AL_NEVER) maker->empty_since = session->now;
  if (session->now >= maker->empty_since + al_fence_empty_for(session))
    give_up(maker);
  else
    again_after_pause(maker, again, "its message is in the hand of another client");
}

/* The fence has a message. Without a base it is of other software, and so may the queue be. */
static void found(al_fence_maker *maker, const al_content *content) {
  if (al_fence_fail_used_up(maker->op, maker->fence, content)) return;
  if (al_fence_number(content) > maker->least)
    done(maker);
  else if (content->base < 0 && !maker->mends)
    al_op_fail(maker->op, AL_SQUATTED, "\"%s\" has a message that is no fence's", maker->fence);
  else
    delete_fence(maker);
}

static void peeking(al_fence_maker *maker, const al_event *event) {
  if (event->kind == AL_EVENT_CONTENT)
    found(maker, event->content);
  else if (is_method(event, AMQP_BASIC_GET_EMPTY_METHOD))
    is_empty(maker, peek, lost);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

static void fail_lost(al_fence_maker *maker) {
  al_op_fail(
      maker->op, AL_CONFLICT,
      "the message of \"%s\" is gone: a policy may remove it (delivery-limit, message-ttl, max-length)",
      maker->fence);
}

static void asking(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DECLARE_OK_METHOD))
    delete_fence(maker);
  else if (event->kind == AL_EVENT_CLOSED && al_event_is_absent(event))
    fail_lost(maker);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

static void removing(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DELETE_OK_METHOD))
    make(maker);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

static void still_alone(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DECLARE_OK_METHOD))
    maker->next = making;
  else if (event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_RESOURCE_LOCKED)
    again_after_pause(maker, enter, "another client is making it");
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

static void making(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_BASIC_ACK_METHOD)) {
    maker->empty_since = AL_NEVER;
    try_out(maker);
  } else if (is_method(event, AMQP_BASIC_NACK_METHOD)) {
    al_op_fail(maker->op, AL_UNAVAILABLE, "\"%s\" did not accept its message", maker->fence);
  } else if (event->kind == AL_EVENT_CLOSED) {
    refused(maker, event);
  }
}

static void trying(al_fence_maker *maker, const al_event *event) {
  bool is_got = event->kind == AL_EVENT_CONTENT && event->content->method == AMQP_BASIC_GET_OK_METHOD;
  if (event->kind == AL_EVENT_CLOSED) refused(maker, event);
  if (!is_got && !is_method(event, AMQP_BASIC_GET_EMPTY_METHOD)) return;
  if (is_got) {
    maker->tries++;
    maker->empty_since = AL_NEVER;
  }
  if (--maker->asked > 0) return;
  if (maker->tries >= AL_FENCE_TRIES)
    finish(maker);
  else
    is_empty(maker, try_out, fail_lost);
}

static void finishing(al_fence_maker *maker, const al_event *event) {
  if (is_method(event, AMQP_QUEUE_DELETE_OK_METHOD))
    done(maker);
  else if (event->kind == AL_EVENT_CLOSED)
    refused(maker, event);
}

/* ---- for the operation ------------------------------------------------------------------------------------------- */

void al_fence_maker_begin(al_fence_maker *maker, al_op *op, const char *fence, int64_t least,
                          int64_t empty_since) {
  *maker = (al_fence_maker){.op = op,
                            .fence = fence,
                            .least = least,
                            .until = al_deadline_after(op->session->now, 2 * op->session->settings.timeout),
                            .empty_since = empty_since,
                            .pause = AL_BACKOFF_FENCE,
                            .why = "the broker did not answer"};
}

/* The broker has not confirmed the message yet. */
static bool is_publishing(const al_fence_maker *maker) {
  return maker->next == still_alone || maker->next == making;
}

/* True if this maker has the connection, and it is open. One maker at a time has it, and each has a new one. */
static bool has_link(al_fence_maker *maker) {
  al_fence_links *links = maker->op->session->fence_links;
  al_link *link = link_of(maker);
  if (links->making == maker && al_link_is_open(link)) return true;
  if (links->making && links->making != maker) return false;
  bool is_over = link->state == AL_LINK_CLOSING || al_link_is_open(link);
  if (links->making != maker && is_over) return false; /* the connection of the maker before */
  if (links->making != maker) al_link_forget(link);
  links->making = maker;
  al_fence_links_renew(link);
  al_op_needs(maker->op, link);
  return false;
}

/* The connection was lost on the way: begins anew. */
static void restart(al_fence_maker *maker) {
  if (!maker->again && !maker->next) return;
  snprintf(maker->why, sizeof maker->why, "%.159s", link_of(maker)->why);
  maker->next = NULL;
  maker->again = NULL;
  maker->tries = 0;
}

bool al_fence_maker_poll(al_fence_maker *maker) {
  al_op *op = maker->op;
  int64_t now = op->session->now;
  if (op->done || maker->is_made) return maker->is_made && !op->done;
  if (now >= maker->until) {
    al_op_fail(op, AL_UNAVAILABLE, "\"%s\" could not be made within %g s: %s", maker->fence,
               2 * (double)op->session->settings.timeout / (double)AL_SECOND, maker->why);
    return false;
  }
  if (is_publishing(maker) && link_of(maker)->blocked) {
    al_op_fail(op, AL_BLOCKED, "making \"%s\": %s", maker->fence, AL_NO_PUBLISHERS);
    return false;
  }
  if (!al_link_is_open(link_of(maker))) restart(maker);
  if (has_link(maker)) {
    if (maker->again && now >= maker->again_at)
      maker->again(maker);
    else if (!maker->again && !maker->next)
      enter(maker);
  }
  if (op->done) return false;
  op->wake = maker->again && now < maker->again_at ? al_earlier(maker->until, maker->again_at) : maker->until;
  return maker->is_made;
}

void al_fence_maker_cancel(al_fence_maker *maker) {
  if (!maker->op) return;
  al_fence_links *links = maker->op->session->fence_links;
  al_channel *channel = maker->channel;
  maker->channel = NULL;
  if (channel) al_channel_close(channel);
  if (links->making != maker) return;
  links->making = NULL;
  al_op_abort_link(maker->op, &links->maker, AL_CLOSED, "what it was opened for has ended");
}
