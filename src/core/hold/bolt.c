/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/bolt.h"

#include <stdio.h>
#include <string.h>

#include "core/base/field.h"
#include "core/queue/declare.h"
#include "core/session/annex.h"
#include "core/wire/link.h"

#define DENIED_FOR (60 * AL_SECOND)
#define REPLY_TEXT_MOST 255
#define TAG_SIZE (AL_TICKET_SIZE + 8)

/* When they are over, by the bolt's name. That of "" is the note that tells of them: no other is written before. */
static const al_annex_kind denials = {.size = sizeof(int64_t), .most = 17};

static bool is_denied(const al_session *session, const char *bolt) {
  const int64_t *until = al_annex_find(session, &denials, bolt);
  return until && session->now < *until;
}

bool al_bolt_is_needed(const al_session *session, const char *bolt) {
  return al_link_ends_by_name(&session->holder) && !is_denied(session, bolt);
}

/* Tags belong to a channel, and one channel has at most one bolt and one claim. */
static amqp_bytes_t bolt_tag(char out[TAG_SIZE], const char *tag) {
  snprintf(out, TAG_SIZE, "%s-bolt", tag);
  return amqp_cstring_bytes(out);
}

void al_bolt_shut(al_channel *channel, const char *bolt, const char *tag) {
  char text[TAG_SIZE];
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(bolt),
                                  .consumer_tag = bolt_tag(text, tag),
                                  .no_ack = 1,
                                  .exclusive = 1,
                                  .nowait = 1};
  al_declare_bolt(channel, bolt, false);
  al_link_method(channel->link, channel->number, AMQP_BASIC_CONSUME_METHOD, &consume);
}

void al_bolt_open(al_channel *channel, const char *tag) {
  char text[TAG_SIZE];
  amqp_basic_cancel_t cancel = {.consumer_tag = bolt_tag(text, tag)};
  al_channel_call(channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
}

bool al_bolt_is_tag(amqp_bytes_t consumer_tag, const char *tag) {
  char text[TAG_SIZE];
  bolt_tag(text, tag);
  return al_field_is(consumer_tag, text);
}

void al_bolt_declare_passive(al_channel *channel, const char *bolt) { al_declare_bolt(channel, bolt, true); }

/* The broker cuts its text at 255 bytes and then ends it with three dots, so only the beginning of a long name may be
 * there. The text that refuses the claim's own queue, because another client holds it, must not be taken for the
 * bolt's: for that text the name must be there in full. */
static bool is_named(const char *text, const char *bolt, bool in_full) {
  char words[AL_NAME_SIZE + 16];
  snprintf(words, sizeof words, "queue '%s'", bolt);
  size_t length = strlen(text), most = strlen(words);
  const char *at = strstr(text, "queue '");
  if (!at) return false;
  if (!in_full && length == REPLY_TEXT_MOST && strcmp(text + length - 3, "...") == 0) {
    size_t told = length - 3 - (size_t)(at - text);
    if (told < most) most = told;
  }
  return strncmp(at, words, most) == 0;
}

/* Any other 403 begins with the permission that is missing: "access to queue", "configure access to queue". */
static bool is_in_use(const char *text) {
  static const char words[] = "ACCESS_REFUSED - queue '";
  return strncmp(text, words, sizeof words - 1) == 0;
}

al_bolt_verdict al_bolt_judge(const al_event *event, const char *bolt) {
  bool is_request = event->method == AMQP_QUEUE_DECLARE_METHOD || event->method == AMQP_BASIC_CONSUME_METHOD;
  bool is_locked = event->reply_code == AMQP_RESOURCE_LOCKED;
  if (!is_request || !is_named(event->text, bolt, is_locked)) return AL_BOLT_OTHER;
  return al_event_is_absent(event) || is_in_use(event->text) ? AL_BOLT_LOST : AL_BOLT_REFUSED;
}

void al_bolt_deny(al_session *session, const char *bolt, const char *text) {
  int64_t *until = al_annex_use(session, &denials, bolt), *told_until = al_annex_use(session, &denials, "");
  if (until) *until = session->now + DENIED_FOR; /* otherwise the next claim will be denied it again */
  if (!told_until || session->now < *told_until) return;
  *told_until = session->now + DENIED_FOR;
  char name[AL_NAME_SIZE];
  al_queue_parse(bolt, name, NULL);
  al_session_note(session, true, AL_REFUSED, name,
                  "locks are held without the bolt \"%s\", which they need before RabbitMQ 4.3: %s", bolt,
                  text);
}
