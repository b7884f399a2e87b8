/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/session/op.h"
#include "core/session/session.h"
#include "core/wire/link.h"

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void passive_done(al_probes *batch);
static bool publish_anew(al_probes *batch, size_t index, int64_t asked_at);

/* By publishing, whoever waits for the answers waits for the prober. */
static void set_published(al_probes *batch, bool is_published) {
  batch->op->asks += is_published - batch->is_published;
  batch->is_published = is_published;
}

static void answer(al_probes *batch, size_t index, al_answer answer, const char *text) {
  if (batch->answers[index] != AL_ANSWER_PENDING) return;
  batch->answers[index] = answer;
  if (text) snprintf(batch->text, sizeof batch->text, "%s", text);
  if (--batch->pending > 0) return;
  passive_done(batch);
  set_published(batch, false);
  batch->op->step(batch->op);
}

bool al_probes_undecided(al_probes *batch, size_t index) {
  al_session *session = batch->op->session;
  const al_link *link = batch->is_passive ? &session->holder : &session->prober->link;
  if (batch->answers[index] == AL_ANSWER_DENIED) {
    al_op_fail(batch->op, AL_REFUSED, "the broker denies asking for queues: %s", batch->text);
  } else if (batch->answers[index] == AL_ANSWER_UNKNOWN) {
    if (al_link_is_lost(link))
      al_op_fail_link(batch->op, link);
    else
      al_op_fail(batch->op, link->blocked ? AL_BLOCKED : AL_UNREACHABLE, "asking for queues: %s",
                 batch->text);
  } else {
    return false;
  }
  return true;
}

/* ---- passive declares ------------------------------------------------------------------------------------------- */

static al_answer passive_answer(const al_event *event) {
  switch (event->reply_code) {
    case AMQP_NOT_FOUND:
      return al_event_is_absent(event) ? AL_ANSWER_ABSENT : AL_ANSWER_UNAVAILABLE;
    case AMQP_RESOURCE_LOCKED:
      return AL_ANSWER_PRESENT;
    case AMQP_ACCESS_REFUSED:
      return AL_ANSWER_DENIED;
    default:
      return AL_ANSWER_UNKNOWN;
  }
}

static void passive_more(al_probes *batch);

/* None of the questions will be answered, asked or not. */
static void passive_lost(al_probes *batch) {
  for (size_t i = 0; i < batch->count && batch->pending > 0; i++) answer(batch, i, AL_ANSWER_UNKNOWN, NULL);
}

static void passive_event(void *owner, al_channel *channel, const al_event *event) {
  struct al_passive *passive = owner;
  al_probes *batch = passive->batch;
  size_t index = passive->index;
  al_answer got = AL_ANSWER_PRESENT;
  (void)channel;
  if (event->kind == AL_EVENT_METHOD && event->method != AMQP_QUEUE_DECLARE_OK_METHOD) return;
  if (event->kind == AL_EVENT_CONTENT) return;
  if (event->kind == AL_EVENT_METHOD) al_channel_give(passive->channel);
  if (event->kind == AL_EVENT_CLOSED) got = passive_answer(event);
  passive->channel = NULL;
  if (event->kind == AL_EVENT_DOWN) {
    passive_lost(batch);
    return;
  }
  if (batch->pending > 1) passive_more(batch);
  answer(batch, index, got, event->kind == AL_EVENT_CLOSED ? event->text : NULL);
}

static struct al_passive *passive_free(al_probes *batch) {
  for (int i = 0; i < AL_PASSIVE_CHANNELS; i++)
    if (!batch->passive[i].channel) return &batch->passive[i];
  return NULL;
}

static bool passive_ask(al_probes *batch, struct al_passive *passive) {
  char name[AL_NAME_SIZE];
  *passive = (struct al_passive){.batch = batch, .index = batch->passive_next};
  passive->channel = al_channel_take(&batch->op->session->holder, passive_event, passive);
  if (!passive->channel) return false;
  batch->name(batch->context, batch->passive_next++, name);
  al_channel_look(passive->channel, name);
  return true;
}

/* Keeps as many questions under way as there are channels; with none at all the questions stay without answers. */
static void passive_more(al_probes *batch) {
  struct al_passive *passive;
  while (batch->passive_next < batch->count && (passive = passive_free(batch))) {
    if (batch->answers[batch->passive_next] != AL_ANSWER_PENDING)
      batch->passive_next++;
    else if (!passive_ask(batch, passive))
      break;
  }
}

static bool passive_is_stuck(const al_probes *batch) {
  if (batch->pending == 0) return false;
  for (int i = 0; i < AL_PASSIVE_CHANNELS; i++)
    if (batch->passive[i].channel) return false;
  return true;
}

static bool passive_begin(al_probes *batch) {
  if (!al_op_has(batch->op, &batch->op->session->holder)) return false;
  batch->is_passive = true;
  set_published(batch, false);
  batch->passive_next = 0;
  passive_more(batch);
  if (!passive_is_stuck(batch)) return true;
  al_op_fail_channel(batch->op, &batch->op->session->holder,
                     "no channel is left on the connection to ask for queues");
  return false;
}

static void passive_done(al_probes *batch) {
  for (int i = 0; i < AL_PASSIVE_CHANNELS; i++) {
    if (batch->passive[i].channel) al_channel_close(batch->passive[i].channel);
    batch->passive[i].channel = NULL;
  }
}

/* ---- publishing ------------------------------------------------------------------------------------------------- */

static struct al_question *question_at(al_prober *prober, size_t offset) {
  return &prober->questions[(prober->start + offset) % prober->size];
}

static bool questions_reserve(al_prober *prober, size_t more) {
  if (prober->count + more <= prober->size) return true;
  size_t size = prober->size ? prober->size : 64;
  while (size < prober->count + more) size *= 2;
  struct al_question *questions = calloc(size, sizeof *questions);
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

static void question_settle(al_prober *prober, size_t offset, bool acknowledged) {
  struct al_question *question = question_at(prober, offset);
  al_probes *batch = question->batch;
  if (question->settled) return;
  question->settled = true;
  question->batch = NULL;
  if (batch)
    answer(batch, question->index,
           !acknowledged        ? AL_ANSWER_UNAVAILABLE
           : question->returned ? AL_ANSWER_ABSENT
                                : AL_ANSWER_PRESENT,
           NULL);
}

/* The tag comes from outside: it bounds no loop before it was compared with what is really under way. */
static void confirmed(al_prober *prober, uint64_t tag, bool multiple, bool acknowledged) {
  uint64_t offset = tag - prober->first_tag;
  if (tag < prober->first_tag && multiple && tag > 0) return; /* settled one by one before */
  if (tag < prober->first_tag || offset >= prober->count) {
    al_link_abort(&prober->link, AL_PROTOCOL, "the broker confirmed a message that was not published");
    return;
  }
  prober->denied = prober->denied && !acknowledged; /* permitted by now */
  for (size_t i = multiple ? 0 : (size_t)offset; i <= offset; i++) question_settle(prober, i, acknowledged);
  questions_forget_settled(prober);
}

static void returned(al_prober *prober, const al_content *content) {
  bool is_permit = strcmp(content->type, AL_TYPE_PERMIT) == 0;
  uint64_t id = strtoull(is_permit ? content->correlation_id : content->message_id, NULL, 10);
  if (id >= prober->first_id && id - prober->first_id < prober->count)
    question_at(prober, (size_t)(id - prober->first_id))->returned = true;
}

static bool is_late(const al_prober *prober, const struct al_question *question) {
  return prober->link.now - question->asked_at >= prober->settings.timeout;
}

typedef enum elsewhere { NOWHERE, PASSIVELY, PASSIVELY_OR_ANEW } elsewhere;

/* Nobody will answer what is under way by publishing. Batches that may are asked passively, or else on another channel, if
 * there is time left for that. Whoever is told may publish something else, which is not given up. Returns how many were under
 * way. */
static size_t questions_give_up(al_prober *prober, elsewhere where, al_answer otherwise, const char *text) {
  size_t count = prober->count;
  for (size_t i = 0; i < count; i++) {
    struct al_question *question = question_at(prober, i);
    al_probes *batch = question->batch;
    size_t index = question->index;
    bool has_time = where != NOWHERE && !is_late(prober, question);
    question->batch = NULL;
    if (!batch || batch->is_passive) continue;
    if (has_time && batch->probing == AL_PROBE_AUTO)
      passive_begin(batch);
    else if (!has_time || where == PASSIVELY || !publish_anew(batch, index, question->asked_at))
      answer(batch, index, otherwise, text);
  }
  return count;
}

static void questions_forget(al_prober *prober, size_t count) {
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
    questions_forget(prober, questions_give_up(prober, denied ? PASSIVELY : NOWHERE, otherwise, event->text));
  }
}

static bool prober_ready(al_prober *prober) {
  amqp_confirm_select_t select = {0};
  if (prober->channel) return true;
  prober->channel = al_channel_take(&prober->link, prober_event, prober);
  if (!prober->channel) return false;
  prober->first_tag = 1;
  al_channel_call(prober->channel, AMQP_CONFIRM_SELECT_METHOD, &select);
  return true;
}

/* A queue that does not answer (of a quorum without a leader, say) keeps RabbitMQ from answering anything that was published
 * after it on the same channel; other channels are served. Not so in an alarm, which ends for all of them. Is there somebody
 * who waits behind such a question, and whose own time is not over? */
static bool prober_is_silent(al_prober *prober) {
  if (!prober->channel || prober->count == 0 || prober->link.blocked) return false;
  if (!is_late(prober, question_at(prober, 0))) return false;
  for (size_t i = prober->count; i-- > 1;) {
    const struct al_question *question = question_at(prober, i);
    if (question->batch && !question->batch->is_passive) return !is_late(prober, question);
  }
  return false;
}

#define SILENCED_MOST 100 /* channels that wait for their close-ok, before the connection goes as well */

static void prober_give_up_channel(al_prober *prober) {
  al_channel *silent = prober->channel;
  char text[64];
  snprintf(text, sizeof text, "the broker did not answer within %g s",
           (double)prober->settings.timeout / (double)AL_SECOND);
  if (++prober->silenced > SILENCED_MOST) {
    al_link_abort(&prober->link, AL_UNREACHABLE, "%s", text);
    return;
  }
  prober->channel = NULL;
  al_channel_close(silent);
  questions_forget(prober, questions_give_up(prober, PASSIVELY_OR_ANEW, AL_ANSWER_UNKNOWN, text));
}

static const char *const message_types[] = {
    [AL_MESSAGE_REVOKE] = AL_TYPE_REVOKE,   [AL_MESSAGE_TOKEN] = AL_TYPE_TOKEN,
    [AL_MESSAGE_WAITING] = AL_TYPE_WAITING, [AL_MESSAGE_READERS] = NULL,
    [AL_MESSAGE_PERMIT] = AL_TYPE_PERMIT,   [AL_MESSAGE_MARK] = AL_TYPE_MARK};

static bool stays(al_message message) {
  return message == AL_MESSAGE_TOKEN || message == AL_MESSAGE_PERMIT || message == AL_MESSAGE_MARK;
}

/* What does not stay, whatever happens to the broker, is worth nothing a moment later. */
static amqp_basic_properties_t properties_of(al_message message, const char *id) {
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .message_id = amqp_cstring_bytes(id),
                                        .expiration = amqp_cstring_bytes("0"),
                                        .delivery_mode = AMQP_DELIVERY_NONPERSISTENT};
  if (stays(message))
    properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
  else
    properties._flags |= AMQP_BASIC_EXPIRATION_FLAG;
  if (message_types[message]) {
    properties._flags |= AMQP_BASIC_TYPE_FLAG;
    properties.type = amqp_cstring_bytes(message_types[message]);
  }
  return properties;
}

static void give_life_id(amqp_basic_properties_t *properties, const char *ticket) {
  properties->_flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
  properties->correlation_id = properties->message_id;
  properties->message_id = amqp_cstring_bytes(ticket);
}

/* There is room for one more question. */
static void question_publish(al_prober *prober, al_message message, const char *queue,
                             struct al_question question) {
  char id[24], ticket[AL_TICKET_SIZE];
  snprintf(id, sizeof id, "%" PRIu64, prober->first_id + prober->count);
  bool is_key = message == AL_MESSAGE_READERS;
  amqp_basic_publish_t publish = {.exchange =
                                      is_key ? amqp_cstring_bytes(AL_READERS_EXCHANGE) : amqp_empty_bytes,
                                  .routing_key = amqp_cstring_bytes(queue),
                                  .mandatory = 1};
  amqp_basic_properties_t properties = properties_of(message, id);
  if (message == AL_MESSAGE_PERMIT) {
    al_session_ticket(question.batch->op->session, ticket);
    give_life_id(&properties, ticket);
  }
  amqp_frame_t header = {.frame_type = AMQP_FRAME_HEADER, .channel = (amqp_channel_t)prober->channel->number};
  header.payload.properties.class_id = AMQP_BASIC_CLASS;
  header.payload.properties.decoded = &properties;
  question.asked_at = prober->link.now;
  *question_at(prober, prober->count++) = question;
  al_link_method(&prober->link, prober->channel->number, AMQP_BASIC_PUBLISH_METHOD, &publish);
  al_link_send(&prober->link, &header);
}

/* On another channel than before. Only what is nothing but a question: anything else could be done twice. */
static bool publish_anew(al_probes *batch, size_t index, int64_t asked_at) {
  al_prober *prober = batch->op->session->prober;
  char queue[AL_NAME_SIZE];
  if (batch->message != AL_MESSAGE_PROBE && batch->message != AL_MESSAGE_READERS) return false;
  if (!prober_ready(prober) || !questions_reserve(prober, 1)) return false;
  batch->name(batch->context, index, queue);
  question_publish(prober, batch->message, queue, (struct al_question){.batch = batch, .index = index});
  question_at(prober, prober->count - 1)->asked_at = asked_at;
  return true;
}

bool al_prober_ring(al_prober *prober, const char *bell) {
  if (prober->link.blocked || prober->denied) return false;
  if (!prober_ready(prober) || !questions_reserve(prober, 1)) return false;
  question_publish(prober, AL_MESSAGE_TOKEN, bell, (struct al_question){.batch = NULL});
  return true;
}

static bool publish_begin(al_probes *batch) {
  al_prober *prober = batch->op->session->prober;
  if (prober->link.blocked) {
    al_op_fail(batch->op, AL_BLOCKED, AL_NO_PUBLISHERS);
    return false;
  }
  if (!prober_ready(prober)) {
    al_op_fail_channel(batch->op, &prober->link, "no channel is left on the connection to ask for queues");
    return false;
  }
  if (!questions_reserve(prober, batch->count)) {
    al_op_fail(batch->op, AL_NO_MEMORY, "asking for %zu queues", batch->count);
    return false;
  }
  for (size_t i = 0; i < batch->count; i++) {
    char queue[AL_NAME_SIZE];
    batch->name(batch->context, i, queue);
    question_publish(prober, batch->message, queue, (struct al_question){.batch = batch, .index = i});
  }
  set_published(batch, true);
  return true;
}

bool al_probes_publish(const al_session *session, al_probing probing) {
  if (probing != AL_PROBE_AUTO) return probing == AL_PROBE_PUBLISH;
  return !session->prober->link.blocked && !session->prober->denied;
}

bool al_probes_begin(al_probes *batch, al_op *op, al_probing probing, size_t count, al_probe_name *name,
                     const void *context) {
  if (count > batch->size) {
    al_answer *answers = realloc(batch->answers, count * sizeof *answers);
    if (!answers) {
      al_op_fail(op, AL_NO_MEMORY, "asking for %zu queues", count);
      return false;
    }
    batch->answers = answers;
    batch->size = count;
  }
  memset(batch->answers, 0, count * sizeof *batch->answers);
  batch->op = op;
  batch->probing = probing;
  batch->name = name;
  batch->context = context;
  batch->count = batch->pending = count;
  batch->is_passive = false;
  return al_probes_publish(op->session, probing) ? publish_begin(batch) : passive_begin(batch);
}

void al_probes_cancel(al_probes *batch) {
  if (!batch->op || batch->pending == 0) return;
  al_prober *prober = batch->op->session->prober;
  for (size_t i = 0; i < prober->count; i++) {
    struct al_question *question = question_at(prober, i);
    if (question->batch == batch) question->batch = NULL;
  }
  passive_done(batch);
  set_published(batch, false);
  batch->pending = 0;
}

void al_probes_free(al_probes *batch) {
  al_probes_cancel(batch);
  free(batch->answers);
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

/* Its users' steps are taken when it reads. */
static void set_now(al_prober *prober, int64_t now) {
  prober->link.now = now;
  for (al_session *user = prober->users; user; user = user->next_user) user->now = user->holder.now = now;
}

static void tell_time(void *watcher) {
  al_prober *prober = watcher;
  const al_session *owner = prober->owner;
  if (owner && owner->clock) set_now(prober, owner->clock(owner));
}

static void link_changed(void *watcher, al_link *link, al_link_change change) {
  al_prober *prober = watcher;
  if (prober->owner) al_session_note_change(prober->owner, link, change);
  if (link->blocked) questions_give_up(prober, PASSIVELY, AL_ANSWER_UNKNOWN, AL_NO_PUBLISHERS);
  if (al_link_is_open(link) && !prober->channel) {
    prober->denied = false;
    prober->silenced = 0;
  }
  for (al_session *user = prober->users; user; user = user->next_user) al_session_step(user);
}

al_prober *al_prober_new(al_session *owner, uint64_t seed) {
  al_prober *prober = calloc(1, sizeof *prober);
  if (!prober) return NULL;
  prober->settings = owner->settings;
  prober->random = seed;
  prober->owner = owner;
  prober->first_id = 1;
  prober->cluster.seed = seed;
  al_link_init(&prober->link, &prober->settings, &prober->cluster, "prober", &prober->random);
  prober->link.changed = link_changed;
  prober->link.tell_time = tell_time;
  prober->link.watcher = prober;
  al_prober_use(prober, owner);
  return prober;
}

void al_prober_use(al_prober *prober, al_session *user) {
  prober->refs++;
  user->prober = prober;
  user->next_user = prober->users;
  prober->users = user;
}

void al_prober_disown(al_prober *prober, al_session *user) {
  al_session **at = &prober->users;
  while (*at && *at != user) at = &(*at)->next_user;
  if (*at) *at = user->next_user;
  if (prober->owner != user) return;
  prober->owner = NULL;
  al_link_abort(&prober->link, AL_CLOSED, "the connection was closed");
}

void al_prober_leave(al_prober *prober, al_session *user) {
  al_prober_disown(prober, user);
  if (--prober->refs > 0) return;
  al_link_free(&prober->link);
  free(prober->questions);
  free(prober);
}

void al_prober_pump(al_prober *prober, int64_t now) {
  set_now(prober, now);
  al_link_pump(&prober->link, now);
  if (prober_is_silent(prober)) prober_give_up_channel(prober);
}
