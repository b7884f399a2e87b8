/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/channel.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/field.h"
#include "core/base/methods.h"

#define IDLE_MAX 16 /* channels kept open in the pool */
#define LEFT_MOST (60 * AL_SECOND)

static al_channel *channel_at(const al_link *link, int number) {
  return number > 0 && number < link->channels_size ? link->channels[number] : NULL;
}

static bool channels_grow(al_link *link, int number) {
  if (number < link->channels_size) return true;
  int size = link->channels_size ? link->channels_size * 2 : 16;
  al_channel **channels = realloc(link->channels, (size_t)size * sizeof *channels);
  if (!channels) return false;
  memset(channels + link->channels_size, 0, (size_t)(size - link->channels_size) * sizeof *channels);
  link->channels = channels;
  link->channels_size = size;
  return true;
}

/* Uses the lowest free number: the table of channels stays as long as the highest one that was used. */
static al_channel *channel_free(al_link *link) {
  for (int number = 1; number <= link->channel_max; number++) {
    al_channel *channel = channel_at(link, number);
    if (channel && channel->state != AL_CHANNEL_FREE) continue;
    if (channel) return channel;
    if (!channels_grow(link, number) || !(channel = calloc(1, sizeof *channel))) {
      link->lacks_memory = true;
      return NULL;
    }
    channel->link = link;
    channel->number = number;
    return link->channels[number] = channel;
  }
  return NULL;
}

static void channel_open(al_channel *channel) {
  amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
  channel->state = AL_CHANNEL_OPEN;
  channel->is_spoilt = false;
  channel->prefetch = 0;
  channel->awaits_cancel_of[0] = '\0';
  channel->unanswered = 0;
  memset(&channel->content, 0, sizeof channel->content);
  al_channel_call(channel, AMQP_CHANNEL_OPEN_METHOD, &open);
}

static void idle_remove(al_link *link, const al_channel *channel) {
  for (al_channel **at = &link->idle; *at; at = &(*at)->next_idle) {
    if (*at != channel) continue;
    *at = channel->next_idle;
    link->idle_count--;
    return;
  }
}

al_channel *al_channel_take(al_link *link, al_channel_fn *on, void *owner) {
  al_channel *channel = link->idle;
  link->lacks_memory = false;
  if (!al_link_is_open(link)) return NULL;
  if (channel)
    idle_remove(link, channel);
  else if ((channel = channel_free(link)))
    channel_open(channel);
  if (!channel) return NULL;
  channel->on = on;
  channel->owner = owner;
  return channel;
}

static void disown(al_channel *channel) {
  channel->on = NULL;
  channel->owner = NULL;
}

void al_channel_give(al_channel *channel) {
  al_link *link = channel->link;
  disown(channel);
  if (!al_link_is_open(link)) return; /* going down, and its channels with it */
  if (channel->is_spoilt || channel->unanswered > 0 || link->idle_count >= IDLE_MAX) {
    al_channel_close(channel);
    return;
  }
  channel->next_idle = link->idle;
  link->idle = channel;
  link->idle_count++;
}

void al_channel_give_after(al_channel *channel, const char *tag) {
  disown(channel);
  snprintf(channel->awaits_cancel_of, sizeof channel->awaits_cancel_of, "%s", tag);
  channel->awaits_since = channel->link->now;
  if (!al_link_ends_by_name(channel->link) || channel->link->overdue_at != AL_NEVER) return;
  channel->link->overdue_at = channel->link->now + LEFT_MOST;
}

void al_channels_sweep(al_link *link) {
  link->overdue_at = AL_NEVER;
  for (int number = 1; number < link->channels_size; number++) {
    al_channel *channel = link->channels[number];
    if (!channel || channel->state != AL_CHANNEL_OPEN || !channel->awaits_cancel_of[0]) continue;
    int64_t due = channel->awaits_since + LEFT_MOST;
    if (due > link->now) {
      if (due < link->overdue_at) link->overdue_at = due;
      continue;
    }
    channel->awaits_cancel_of[0] = '\0';
    al_channel_close(channel);
  }
}

void al_channel_leave(al_channel *channel) {
  amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
  al_channel_call(channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
  channel->state = AL_CHANNEL_CLOSING;
}

void al_channel_close(al_channel *channel) {
  disown(channel);
  al_channel_leave(channel);
}

void al_channel_call(al_channel *channel, amqp_method_number_t method, void *decoded) {
  assert(channel->state == AL_CHANNEL_OPEN);
  if (channel->unanswered++ == 0) channel->asked_at = channel->link->now;
  al_link_method(channel->link, channel->number, method, decoded);
}

void al_channel_declare_passive(al_channel *channel, const char *queue) {
  amqp_queue_declare_t look = {.queue = amqp_cstring_bytes(queue), .passive = 1};
  al_channel_call(channel, AMQP_QUEUE_DECLARE_METHOD, &look);
}

void al_channel_delete(al_channel *channel, const char *queue) {
  amqp_queue_delete_t request = {.queue = amqp_cstring_bytes(queue)};
  al_channel_call(channel, AMQP_QUEUE_DELETE_METHOD, &request);
}

void al_channel_peek(al_channel *channel, const char *queue) {
  amqp_basic_get_t get = {.queue = amqp_cstring_bytes(queue)};
  amqp_basic_nack_t nack = {.multiple = 1, .requeue = 1}; /* all that the channel has; none is no error */
  al_channel_call(channel, AMQP_BASIC_GET_METHOD, &get);
  al_link_method(channel->link, channel->number, AMQP_BASIC_NACK_METHOD, &nack);
}

static void set_prefetch(al_channel *channel, uint16_t count) {
  amqp_basic_qos_t qos = {.prefetch_count = count};
  al_channel_call(channel, AMQP_BASIC_QOS_METHOD, &qos);
  channel->prefetch = count;
}

void al_channel_ping(al_channel *channel) { set_prefetch(channel, 1); }

void al_channel_prefetch(al_channel *channel, uint16_t count) {
  if (channel->prefetch != count) set_prefetch(channel, count);
}

al_code al_event_refusal(const al_event *event) {
  switch (event->reply_code) {
    case AMQP_ACCESS_REFUSED:
      return AL_REFUSED;
    case AMQP_PRECONDITION_FAILED:
      return strstr(event->text, "limit") ? AL_LIMIT : AL_CONFLICT;
    default:
      return AL_UNREACHABLE;
  }
}

bool al_event_is_absent(const al_event *event) {
  return event->reply_code == AMQP_NOT_FOUND && strstr(event->text, "no queue");
}

al_code al_event_code(const al_event *event, al_code locked, al_code absent) {
  if (event->reply_code == AMQP_RESOURCE_LOCKED) return locked;
  if (event->reply_code == AMQP_NOT_FOUND) return al_event_is_absent(event) ? absent : AL_UNAVAILABLE;
  return al_event_refusal(event);
}

/* ---- what arrives ----------------------------------------------------------------------------------------------- */

static void tell(al_channel *channel, const al_event *event) {
  if (channel->on && channel->state == AL_CHANNEL_OPEN) channel->on(channel->owner, channel, event);
}

/* The owner no longer has the channel. */
static void tell_last(al_channel *channel, const al_event *event) {
  al_channel_fn *on = channel->on;
  void *owner = channel->owner;
  disown(channel);
  if (on) on(owner, channel, event);
}

/* An answer proves that the broker heard from us after the oldest unanswered request was sent, whichever it
 * answers. */
static void answered(al_channel *channel) {
  if (channel->unanswered > 0) channel->unanswered--;
  al_link_answered(channel->link, channel->asked_at);
}

static void channel_free_number(al_channel *channel) {
  idle_remove(channel->link, channel);
  channel->state = AL_CHANNEL_FREE;
}

/* RabbitMQ names the permission from 3.13 on. A text that is cut off is left alone: it is compared (bolt.c). */
static const char *lacking(const amqp_channel_close_t *close, const char *text) {
  bool lacks = close->reply_code == AMQP_ACCESS_REFUSED && strstr(text, "- access to ");
  if (!lacks || close->reply_text.len >= 255) return "";
  if (close->class_id == AMQP_QUEUE_CLASS) return " (it takes the permission to configure)";
  return close->method_id == (AMQP_BASIC_PUBLISH_METHOD & 0xffff) ? " (it takes the permission to write)"
                                                                  : " (it takes the permission to read)";
}

static void closed_by_broker(al_channel *channel, const amqp_channel_close_t *close) {
  char told[256], text[320];
  snprintf(told, sizeof told, "%.*s", (int)close->reply_text.len, (const char *)close->reply_text.bytes);
  snprintf(text, sizeof text, "%s%s", told, lacking(close, told));
  if (!text[0]) snprintf(text, sizeof text, "the broker closed the channel, with code %d", close->reply_code);
  al_event event = {.kind = AL_EVENT_CLOSED,
                    .method = (amqp_method_number_t)close->class_id << 16 | close->method_id,
                    .reply_code = close->reply_code,
                    .text = text};
  amqp_channel_close_ok_t ok = {0};
  bool settled = channel->state != AL_CHANNEL_CLOSING; /* otherwise our own close is still unanswered */
  if (event.method != 0)
    answered(channel); /* a close with method 0 answers no request, so it proves nothing */
  al_link_method(channel->link, channel->number, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
  channel->was_closed = true;
  if (settled) channel_free_number(channel);
  tell_last(channel, &event);
}

/* See al_channel_give_after. */
static void cancel_arrived(al_channel *channel, const amqp_basic_cancel_t *cancel) {
  if (!channel->awaits_cancel_of[0] || !al_field_is(cancel->consumer_tag, channel->awaits_cancel_of)) return;
  channel->awaits_cancel_of[0] = '\0';
  al_channel_give(channel);
}

static void content_begin(al_channel *channel, amqp_method_number_t method) {
  channel->content = (al_content){.method = method, .expects_header = true};
}

static void delivery_begin(al_channel *channel, const amqp_basic_deliver_t *deliver) {
  al_content *content = &channel->content;
  content_begin(channel, AMQP_BASIC_DELIVER_METHOD);
  content->delivery_tag = deliver->delivery_tag;
  content->redelivered = deliver->redelivered;
  if (deliver->consumer_tag.len < sizeof content->consumer_tag)
    memcpy(content->consumer_tag, deliver->consumer_tag.bytes, deliver->consumer_tag.len);
}

static void get_begin(al_channel *channel, const amqp_basic_get_ok_t *got) {
  content_begin(channel, AMQP_BASIC_GET_OK_METHOD);
  channel->content.delivery_tag = got->delivery_tag;
  channel->content.redelivered = got->redelivered;
  channel->content.others = got->message_count;
}

/* Returns false if the method breaks the protocol. */
static bool method_arrived(al_channel *channel, const amqp_method_t *method) {
  if (method->id == AMQP_CHANNEL_CLOSE_OK_METHOD && channel->state != AL_CHANNEL_CLOSING) return false;
  if (al_method_is_answer(method->id)) answered(channel);
  if (method->id == AMQP_CHANNEL_OPEN_OK_METHOD) channel->was_closed = false;
  if (method->id == AMQP_BASIC_CANCEL_METHOD) cancel_arrived(channel, method->decoded);
  switch (method->id) {
    case AMQP_CHANNEL_CLOSE_METHOD:
      closed_by_broker(channel, method->decoded);
      return true;
    case AMQP_CHANNEL_CLOSE_OK_METHOD:
      channel_free_number(channel);
      tell_last(channel, &(al_event){.kind = AL_EVENT_CLOSED, .text = ""});
      return true;
    case AMQP_BASIC_RETURN_METHOD:
      content_begin(channel, method->id);
      return true;
    case AMQP_BASIC_DELIVER_METHOD:
      delivery_begin(channel, method->decoded);
      return true;
    case AMQP_BASIC_GET_OK_METHOD:
      get_begin(channel, method->decoded);
      return true;
    default:
      tell(channel, &(al_event){.kind = AL_EVENT_METHOD, .method = method->id, .decoded = method->decoded});
      return true;
  }
}

static void content_arrived(al_channel *channel) {
  al_content content = channel->content;
  memset(&channel->content, 0, sizeof channel->content);
  tell(channel, &(al_event){.kind = AL_EVENT_CONTENT, .method = content.method, .content = &content});
}

static void keep_short(char out[40], amqp_bytes_t text, bool there) {
  if (there && text.len < 40) memcpy(out, text.bytes, text.len);
}

/* A message keeps its headers when it is published again. So it may bear a count before its first delivery. */
static bool is_moved(const al_content *content, const amqp_table_t *headers) {
  static const char *const moves[] = AL_HEADERS_OF_MOVES;
  for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
    if (al_field_is_there(headers, moves[i])) return true;
  return content->returns > 0 && !content->redelivered;
}

/* No broker has counted so far: other software wrote it. The sum of two counts does not overflow. */
static bool is_count(int64_t count) { return count >= 0 && count <= INT64_C(1) << 53; }

/* RabbitMQ 4.3 counts in x-acquired-count how often the message was delivered before, and earlier versions do in
 * x-delivery-count. Neither ever falls. So their sum grows also on a queue that was there before an upgrade. */
static void keep_counts(al_content *content, const amqp_basic_properties_t *properties) {
  const amqp_table_t none = {0};
  const amqp_table_t *headers = properties->_flags & AMQP_BASIC_HEADERS_FLAG ? &properties->headers : &none;
  int64_t delivered = al_field_integer(headers, "x-delivery-count", 0);
  int64_t acquired = al_field_integer(headers, "x-acquired-count", 0);
  content->base = al_field_integer(headers, AL_HEADER_BASE, -1);
  bool is_counted = is_count(delivered) && is_count(acquired);
  content->returns = is_counted ? delivered + acquired : 0;
  content->failures = is_counted ? delivered : 0;
  content->is_moved = !is_counted || is_moved(content, headers);
}

static bool header_arrived(al_channel *channel, const amqp_frame_t *frame) {
  al_content *content = &channel->content;
  if (!content->expects_header || frame->payload.properties.class_id != AMQP_BASIC_CLASS) return false;
  const amqp_basic_properties_t *properties = frame->payload.properties.decoded;
  keep_short(content->message_id, properties->message_id, properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG);
  keep_short(content->correlation_id, properties->correlation_id,
             properties->_flags & AMQP_BASIC_CORRELATION_ID_FLAG);
  keep_short(content->type, properties->type, properties->_flags & AMQP_BASIC_TYPE_FLAG);
  keep_counts(content, properties);
  content->expects_header = false;
  content->left = frame->payload.properties.body_size;
  if (content->left == 0) content_arrived(channel);
  return true;
}

static bool body_arrived(al_channel *channel, const amqp_frame_t *frame) {
  al_content *content = &channel->content;
  if (content->expects_header || frame->payload.body_fragment.len > content->left) return false;
  content->left -= frame->payload.body_fragment.len;
  if (content->left == 0 && content->method) content_arrived(channel);
  return true;
}

/* True for a delivery after the broker's own channel.close, and for a repeated channel.close. When the number is in
 * use again, the owner recognises such a delivery by its consumer tag, and such a channel.close comes before
 * open-ok. */
static bool is_stale(const al_channel *channel, const amqp_frame_t *frame) {
  bool is_method = frame->frame_type == AMQP_FRAME_METHOD;
  bool is_delivery = !is_method || frame->payload.method.id == AMQP_BASIC_DELIVER_METHOD;
  bool is_close = is_method && frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD;
  return (channel->state == AL_CHANNEL_FREE && is_delivery) || (is_close && channel->was_closed);
}

bool al_channel_frame(al_link *link, const amqp_frame_t *frame) {
  al_channel *channel = channel_at(link, frame->channel);
  if (channel && is_stale(channel, frame)) return true;
  if (!channel || channel->state == AL_CHANNEL_FREE) return false;
  switch (frame->frame_type) {
    case AMQP_FRAME_METHOD:
      if (channel->content.method) return false; /* no method may come between the frames of a message */
      return method_arrived(channel, &frame->payload.method);
    case AMQP_FRAME_HEADER:
      return header_arrived(channel, frame);
    case AMQP_FRAME_BODY:
      return body_arrived(channel, frame);
    default:
      return false;
  }
}

void al_channels_down(al_link *link) {
  al_channel **channels = link->channels;
  int size = link->channels_size;
  link->channels = NULL;
  link->channels_size = 0;
  link->idle = NULL;
  link->idle_count = 0;
  link->overdue_at = AL_NEVER;
  link->pulse = NULL;
  for (int number = 1; number < size; number++) {
    al_channel *channel = channels[number];
    if (channel) tell_last(channel, &(al_event){.kind = AL_EVENT_DOWN});
  }
  /* Freed only now: an owner of two channels may still use the second when it is notified of the first. */
  for (int number = 1; number < size; number++) free(channels[number]);
  free(channels);
}
