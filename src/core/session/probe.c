/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/field.h"
#include "core/session/session.h"

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void passive_done(al_probes *batch);

static void answer(al_probes *batch, size_t index, al_answer answer, const char *text) {
  if (batch->answers[index] != AL_ANSWER_PENDING) return;
  batch->answers[index] = answer;
  if (text) snprintf(batch->text, sizeof batch->text, "%s", text);
  if (--batch->pending > 0) return;
  passive_done(batch);
  al_op_step(batch->op);
}

bool al_probes_undecided(al_probes *batch, size_t index) {
  al_session *session = batch->op->session;
  const al_link *link = batch->is_passive ? &session->holder : session->prober;
  if (batch->answers[index] == AL_ANSWER_DENIED) {
    al_op_fail(batch->op, AL_REFUSED, "this user may not ask for queues: %s", batch->text);
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

/* The link is lost: every open question gets UNKNOWN, whether it was sent or not. */
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
  al_channel_declare_passive(passive->channel, name);
  return true;
}

/* Sends questions until AL_PASSIVE_CHANNELS are under way or no channel is left. If none is under way then, nothing
 * will be answered; see passive_is_stuck(). */
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

/* The numbers of a permit are counted from the time in microseconds. So those of a new permit are larger than all that
 * others had before, unless a clock went back. No administrator sees the type of a queue that exists: so all permits
 * have a base, though only a quorum queue counts. */
static al_life new_life(al_session *session, const char *queue, al_ids *ids) {
  int64_t now = al_session_microseconds(session), seen = al_fence_links_seen(session->fence_links, queue);
  al_life life = {.base = al_field_number(AL_HEADER_BASE, now > seen ? now : seen)};
  if (!ids || !al_ids_take(ids, life.id)) al_session_ticket(session, life.id);
  return life;
}

static void publish(al_probes *batch, size_t index, int64_t asked_at) {
  al_session *session = batch->op->session;
  char queue[AL_NAME_SIZE];
  al_life life;
  bool is_permit = batch->message == AL_MESSAGE_PERMIT;
  batch->name(batch->context, index, queue);
  if (is_permit) life = new_life(session, queue, batch->ids);
  al_prober_publish(session->asks_by, batch->message, queue, is_permit ? &life : NULL,
                    (al_question){.asker = &batch->asker, .index = index, .asked_at = asked_at});
}

static bool publish_begin(al_probes *batch) {
  al_prober *prober = batch->op->session->asks_by;
  if (prober->link.blocked) {
    al_op_fail(batch->op, AL_BLOCKED, AL_NO_PUBLISHERS);
    return false;
  }
  if (!al_prober_is_ready(prober)) {
    al_op_fail_channel(batch->op, &prober->link, "no channel is left on the connection to ask for queues");
    return false;
  }
  if (!al_prober_reserve(prober, batch->count)) {
    al_op_fail(batch->op, AL_NO_MEMORY, "asking for %zu queues", batch->count);
    return false;
  }
  for (size_t i = 0; i < batch->count; i++) publish(batch, i, prober->link.now);
  return true;
}

static void published_answer(al_asker *asker, size_t index, al_answer got) {
  answer((al_probes *)asker, index, got, NULL);
}

/* Publishes a message again, on another channel. Only a message that is nothing but a question: any other message
 * might then take effect twice. */
static bool publish_anew(al_probes *batch, size_t index, int64_t asked_at) {
  al_prober *prober = batch->op->session->asks_by;
  if (!al_message_is_question(batch->message)) return false;
  if (!al_prober_is_ready(prober) || !al_prober_reserve(prober, 1)) return false;
  publish(batch, index, asked_at);
  return true;
}

/* If the batch may be asked passively, all its open questions are. */
static void published_in_vain(al_asker *asker, size_t index, const al_unanswered *how) {
  al_probes *batch = (al_probes *)asker;
  if (how->has_time && batch->probing == AL_PROBE_AUTO) {
    al_prober_forget(batch->op->session->asks_by, asker);
    passive_begin(batch);
  } else if (!how->may_publish || !publish_anew(batch, index, how->asked_at)) {
    answer(batch, index, how->otherwise, how->text);
  }
}

/* ---- a batch ---------------------------------------------------------------------------------------------------- */

bool al_probes_begin(al_probes *batch, al_op *op, al_message message, al_probing probing, size_t count,
                     al_probe_name *name, const void *context) {
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
  batch->asker = (al_asker){.answered = published_answer, .given_up = published_in_vain};
  batch->op = op;
  batch->message = message;
  batch->probing = probing;
  batch->name = name;
  batch->context = context;
  batch->count = batch->pending = count;
  batch->is_passive = false;
  return al_probing_publishes(op->session, probing) ? publish_begin(batch) : passive_begin(batch);
}

void al_probes_cancel(al_probes *batch) {
  if (!batch->op || batch->pending == 0) return;
  al_prober_forget(batch->op->session->asks_by, &batch->asker);
  passive_done(batch);
  batch->pending = 0;
}

void al_probes_free(al_probes *batch) {
  al_probes_cancel(batch);
  free(batch->answers);
}
