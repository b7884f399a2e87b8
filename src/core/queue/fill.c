/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/fill.h"

#include <stdio.h>

#include "core/session/session.h"

#define AT_ONCE 512

static void queue_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_fill *)context)->queue);
}

static void give_up(al_fill *fill, al_code code, const char *why) {
  fill->missing = 0;
  fill->code = code;
  snprintf(fill->why, sizeof fill->why, "%.159s", why);
}

static void publish_some(al_fill *fill) {
  al_session *session = fill->op->session;
  int some = fill->missing < AT_ONCE ? fill->missing : AT_ONCE;
  if (fill->missing > 0 && session->prober->blocked) give_up(fill, AL_BLOCKED, AL_NO_PUBLISHERS);
  if (fill->missing > 0 && !al_link_is_open(session->prober))
    give_up(fill, AL_UNREACHABLE, "the connection to publish on is lost");
  if (fill->missing <= 0) return;
  fill->missing -= some;
  fill->is_under_way = true;
  al_op_ask(fill->op);
  al_probes_begin(&fill->probes, fill->op, fill->message, AL_PROBE_PUBLISH, (size_t)some, queue_name, fill);
}

void al_fill_begin(al_fill *fill, al_op *op, const char *queue, al_message message, int count) {
  fill->op = op;
  fill->queue = queue;
  fill->missing = count;
  fill->code = AL_OK;
  fill->message = message;
}

static void unknown(al_fill *fill) {
  const al_link *link = fill->op->session->prober;
  if (al_link_is_lost(link))
    give_up(fill, link->code == AL_OK ? AL_UNREACHABLE : link->code, link->why);
  else
    give_up(fill, link->blocked ? AL_BLOCKED : AL_UNREACHABLE, fill->probes.text);
}

static void judge(al_fill *fill, al_answer answer) {
  switch (answer) {
    case AL_ANSWER_PRESENT:
      return;
    case AL_ANSWER_ABSENT:
      give_up(fill, AL_NOT_FOUND, "it was deleted");
      return;
    case AL_ANSWER_DENIED:
      give_up(fill, AL_REFUSED, fill->probes.text);
      return;
    case AL_ANSWER_UNAVAILABLE:
      give_up(fill, AL_UNAVAILABLE, "the broker did not accept the messages");
      return;
    default:
      unknown(fill);
  }
}

bool al_fill_is_idle(al_fill *fill) {
  if (fill->op->done || fill->probes.pending > 0) return false;
  if (!fill->is_under_way) return true;
  fill->is_under_way = false;
  al_op_answered(fill->op);
  for (size_t i = 0; i < fill->probes.count && fill->code == AL_OK; i++) judge(fill, fill->probes.answers[i]);
  return true;
}

bool al_fill_poll(al_fill *fill) {
  if (!al_fill_is_idle(fill)) return false;
  publish_some(fill);
  return !fill->is_under_way && !fill->op->done;
}

void al_fill_cancel(al_fill *fill) { al_probes_cancel(&fill->probes); }

void al_fill_free(al_fill *fill) { al_probes_free(&fill->probes); }
