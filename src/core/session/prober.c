/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/prober.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session/session.h"
#include "core/wire/connection.h"

/* ---- questions -------------------------------------------------------------------------------------------------- */

static al_question *question_at(al_prober *prober, size_t offset) {
  return &prober->questions[(prober->start + offset) % prober->size];
}

bool al_prober_reserve(al_prober *prober, size_t more) {
  if (prober->count + more <= prober->size) return true;
  size_t size = prober->size ? prober->size : 64;
  while (size < prober->count + more) size *= 2;
  al_question *questions = calloc(size, sizeof *questions);
  if (!questions) return false;
  for (size_t i = 0; i < prober->count; i++) questions[i] = *question_at(prober, i);
  free(prober->questions);
  prober->questions = questions;
  prober->size = size;
  prober->start = 0;
  return true;
}

static void questions_forget_settled(al_prober *prober) {
  while (prober->count > 0 && question_at(prober, 0)->settled) {
    prober->start = (prober->start + 1) % prober->size;
    prober->count--;
    prober->first_tag++;
    prober->first_id++;
  }
}

static void settle(al_prober *prober, size_t offset, bool is_acknowledged) {
  al_question *question = question_at(prober, offset);
  al_asker *asker = question->asker;
  if (question->settled) return;
  question->settled = true;
  question->asker = NULL;
  if (!asker) return;
  asker->answered(asker, question->index,
                  !is_acknowledged     ? AL_ANSWER_UNAVAILABLE
                  : question->returned ? AL_ANSWER_ABSENT
                                       : AL_ANSWER_PRESENT);
}

/* The tag comes from the broker. So it is compared with the questions under way before it bounds a loop. */
static void confirmed(al_prober *prober, uint64_t tag, bool multiple, bool acknowledged) {
  uint64_t offset = tag - prober->first_tag;
  if (tag < prober->first_tag && multiple && tag > 0) return; /* all these were settled one by one before */
  if (tag < prober->first_tag || offset >= prober->count) {
    al_connection_abort(&prober->link, AL_PROTOCOL, "the broker confirmed a message that was not published");
    return;
  }
  prober->denied = prober->denied && !acknowledged; /* the user may publish by now */
  for (size_t i = multiple ? 0 : (size_t)offset; i <= offset; i++) settle(prober, i, acknowledged);
  questions_forget_settled(prober);
}

static void returned(al_prober *prober, const al_content *content) {
  bool is_permit = strcmp(content->type, AL_TYPE_PERMIT) == 0;
  uint64_t id = strtoull(is_permit ? content->correlation_id : content->message_id, NULL, 10);
  if (id >= prober->first_id && id - prober->first_id < prober->count)
    question_at(prober, (size_t)(id - prober->first_id))->returned = true;
}

static bool is_late(const al_prober *prober, const al_question *question) {
  return prober->link.now - question->asked_at >= prober->session->settings.timeout;
}

void al_prober_forget(al_prober *prober, const al_asker *asker) {
  for (size_t i = 0; i < prober->count; i++)
    if (question_at(prober, i)->asker == asker) question_at(prober, i)->asker = NULL;
}

typedef enum elsewhere { NOWHERE, PASSIVELY, PASSIVELY_OR_ANEW } elsewhere;

/* Gives up all questions under way. An asker that is notified may publish again; questions published meanwhile are
 * not given up. Returns how many questions were given up. */
static size_t give_up(al_prober *prober, elsewhere where, al_answer otherwise, const char *text) {
  size_t count = prober->count;
  for (size_t i = 0; i < count; i++) {
    al_question *question = question_at(prober, i);
    al_asker *asker = question->asker;
    bool has_time = where != NOWHERE && !is_late(prober, question);
    al_unanswered how = {.has_time = has_time,
                         .may_publish = has_time && where == PASSIVELY_OR_ANEW,
                         .asked_at = question->asked_at,
                         .otherwise = otherwise,
                         .text = text};
    question->asker = NULL;
    if (asker) asker->given_up(asker, question->index, &how);
  }
  return count;
}

static void forget_first(al_prober *prober, size_t count) {
  if (count == 0) return;
  prober->first_id += count;
  prober->count -= count;
  prober->start = (prober->start + count) % prober->size;
}

static void prober_event(void *owner, al_channel *channel, const al_event *event) {
  al_prober *prober = owner;
  (void)channel;
  if (event->kind == AL_EVENT_CONTENT) {
    if (event->method == AMQP_BASIC_RETURN_METHOD) returned(prober, event->content);
  } else if (event->kind == AL_EVENT_METHOD) {
    const amqp_basic_ack_t *ack = event->decoded;
    const amqp_basic_nack_t *nack = event->decoded;
    if (event->method == AMQP_BASIC_ACK_METHOD) confirmed(prober, ack->delivery_tag, ack->multiple, true);
    if (event->method == AMQP_BASIC_NACK_METHOD) confirmed(prober, nack->delivery_tag, nack->multiple, false);
  } else {
    bool denied = event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_ACCESS_REFUSED;
    prober->channel = NULL;
    bool is_other = denied && strstr(event->text, "'" AL_READERS_EXCHANGE "'");
    prober->denied = prober->denied || (denied && !is_other);
    al_answer otherwise = denied ? AL_ANSWER_DENIED : AL_ANSWER_UNKNOWN;
    forget_first(prober, give_up(prober, denied ? PASSIVELY : NOWHERE, otherwise, event->text));
  }
}

/* ---- publishing ------------------------------------------------------------------------------------------------- */

bool al_prober_is_ready(al_prober *prober) {
  amqp_confirm_select_t select = {0};
  if (prober->channel) return true;
  prober->channel = al_channel_take(&prober->link, prober_event, prober);
  if (!prober->channel) return false;
  prober->first_tag = 1;
  al_channel_call(prober->channel, AMQP_CONFIRM_SELECT_METHOD, &select);
  return true;
}

void al_prober_publish(al_prober *prober, al_message message, const char *queue, al_life *life,
                       al_question question) {
  char id[24 + AL_TICKET_SIZE];
  int length = snprintf(id, 24, "%" PRIu64, prober->first_id + prober->count);
  if (message == AL_MESSAGE_TOKEN) { /* tokens of other sessions have the same number */
    id[length] = '.';
    al_session_ticket(prober->session, id + length + 1);
  }
  bool is_key = al_message_is_to_readers(message);
  amqp_basic_publish_t publish = {.exchange =
                                      is_key ? amqp_cstring_bytes(AL_READERS_EXCHANGE) : amqp_empty_bytes,
                                  .routing_key = amqp_cstring_bytes(queue),
                                  .mandatory = 1};
  amqp_basic_properties_t properties = al_message_properties(message, id, life);
  amqp_frame_t header = {.frame_type = AMQP_FRAME_HEADER, .channel = (amqp_channel_t)prober->channel->number};
  header.payload.properties.class_id = AMQP_BASIC_CLASS;
  header.payload.properties.decoded = &properties;
  *question_at(prober, prober->count++) = question;
  al_link_method(&prober->link, prober->channel->number, AMQP_BASIC_PUBLISH_METHOD, &publish);
  al_link_send(&prober->link, &header);
}

bool al_prober_ring(al_session *session, const char *bell) {
  al_prober *prober = session->asks_by;
  if (prober->link.blocked || prober->denied) return false;
  if (!al_prober_is_ready(prober) || !al_prober_reserve(prober, 1)) return false;
  al_prober_publish(prober, AL_MESSAGE_TOKEN, bell, NULL, (al_question){.asked_at = prober->link.now});
  return true;
}

bool al_probing_publishes(const al_session *session, al_probing probing) {
  if (probing != AL_PROBE_AUTO) return probing == AL_PROBE_PUBLISH;
  return !session->prober->blocked && !session->asks_by->denied;
}

bool al_probing_needs(al_op *op, al_probing probing) {
  al_session *session = op->session;
  if (!al_op_needs(op, &session->holder)) return false;
  return !al_probing_publishes(session, probing) || al_op_needs(op, session->prober);
}

bool al_probing_has(al_op *op, al_probing probing) {
  al_session *session = op->session;
  return al_op_has(op, &session->holder) &&
         (!al_probing_publishes(session, probing) || al_op_has(op, session->prober));
}

/* ---- channels that do not answer -------------------------------------------------------------------------------- */

/* A queue may not answer, such as a quorum queue without a leader. RabbitMQ then does not answer anything that was
 * published later on the same channel; it serves other channels. (In an alarm it serves none, and another channel
 * would not help.) True if the first question is late, and a later question, whose own time is not over, waits behind
 * it. */
static bool is_unanswered(al_prober *prober) {
  if (!prober->channel || prober->count == 0 || prober->link.blocked) return false;
  if (!is_late(prober, question_at(prober, 0))) return false;
  for (size_t i = prober->count; i-- > 1;) {
    const al_question *question = question_at(prober, i);
    if (question->asker) return !is_late(prober, question);
  }
  return false;
}

#define SILENCED_MOST                                                                                        \
  100 /* channels given up, each waiting for its close-ok; with one more the connection is given up */

static void give_up_channel(al_prober *prober) {
  al_channel *silent = prober->channel;
  char text[64];
  snprintf(text, sizeof text, "the broker did not answer within %g s",
           (double)prober->session->settings.timeout / (double)AL_SECOND);
  if (++prober->silenced > SILENCED_MOST) {
    al_connection_abort(&prober->link, AL_UNREACHABLE, "%s", text);
    return;
  }
  prober->channel = NULL;
  al_channel_close(silent);
  forget_first(prober, give_up(prober, PASSIVELY_OR_ANEW, AL_ANSWER_UNKNOWN, text));
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

static void tell_time(void *watcher) { al_session_look_at_clock(((al_prober *)watcher)->session); }

static void link_changed(void *watcher, al_link *link, al_link_change change) {
  al_prober *prober = watcher;
  al_session_note_change(prober->session, link, change);
  if (link == &prober->link && link->blocked) give_up(prober, PASSIVELY, AL_ANSWER_UNKNOWN, AL_NO_PUBLISHERS);
  if (link == &prober->link && al_link_is_open(link) && !prober->channel) {
    prober->denied = false;
    prober->silenced = 0;
  }
  al_ops_step(prober->session);
}

bool al_prober_new(al_session *session, uint64_t seed) {
  al_prober *prober = calloc(1, sizeof *prober);
  if (!prober) return false;
  prober->random = seed;
  prober->session = session;
  prober->first_id = 1;
  prober->cluster.seed = seed;
  al_link_init(&prober->link, &session->settings, &prober->cluster, "prober", &prober->random);
  prober->link.changed = link_changed;
  prober->link.tell_time = tell_time;
  prober->link.watcher = prober;
  al_fence_links_init(&prober->fence_links, &prober->link);
  session->asks_by = prober;
  session->prober = &prober->link;
  session->fence_links = &prober->fence_links;
  return true;
}

void al_prober_free(al_prober *prober) {
  al_connection_free(&prober->link);
  al_fence_links_free(&prober->fence_links);
  free(prober->questions);
  free(prober);
}

void al_prober_pump(al_prober *prober, int64_t now) {
  al_connection_pump(&prober->link, now);
  if (is_unanswered(prober)) give_up_channel(prober);
  al_fence_links_pump(&prober->fence_links, now);
}

int64_t al_prober_wake(const al_prober *prober) {
  return al_earlier(al_connection_wake(&prober->link), al_fence_links_wake(&prober->fence_links));
}
