/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/publish.h"

#include <stdio.h>

#include "core/session/session.h"

#define AT_ONCE 512

static void queue_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_publish *)context)->queue);
}

static void give_up(al_publish *publishing, al_code code, const char *why) {
  publishing->missing = 0;
  publishing->code = code;
  snprintf(publishing->why, sizeof publishing->why, "%.159s", why);
}

static void publish_some(al_publish *publishing) {
  al_session *session = publishing->op->session;
  int some = publishing->missing < AT_ONCE ? publishing->missing : AT_ONCE;
  if (publishing->missing > 0 && session->prober->blocked) give_up(publishing, AL_BLOCKED, AL_NO_PUBLISHERS);
  if (publishing->missing > 0 && !al_link_is_open(session->prober))
    give_up(publishing, AL_UNREACHABLE, "the connection to publish on is lost");
  if (publishing->missing <= 0) return;
  publishing->missing -= some;
  publishing->is_under_way = true;
  al_op_ask(publishing->op);
  al_probes_begin(&publishing->probes, publishing->op, publishing->message, AL_PROBE_PUBLISH, (size_t)some,
                  queue_name, publishing);
}

void al_publish_begin(al_publish *publishing, al_op *op, const char *queue, al_message message, int count) {
  publishing->op = op;
  publishing->queue = queue;
  publishing->missing = count;
  publishing->code = AL_OK;
  publishing->message = message;
}

static void unknown(al_publish *publishing) {
  const al_link *link = publishing->op->session->prober;
  if (al_link_is_lost(link))
    give_up(publishing, link->code == AL_OK ? AL_UNREACHABLE : link->code, link->why);
  else
    give_up(publishing, link->blocked ? AL_BLOCKED : AL_UNREACHABLE, publishing->probes.text);
}

static void judge(al_publish *publishing, al_answer answer) {
  switch (answer) {
    case AL_ANSWER_PRESENT:
      return;
    case AL_ANSWER_ABSENT:
      give_up(publishing, AL_NOT_FOUND, "it was deleted");
      return;
    case AL_ANSWER_DENIED:
      give_up(publishing, AL_REFUSED, publishing->probes.text);
      return;
    case AL_ANSWER_UNAVAILABLE:
      give_up(publishing, AL_UNAVAILABLE, "the broker did not accept the messages");
      return;
    default:
      unknown(publishing);
  }
}

bool al_publish_is_idle(al_publish *publishing) {
  if (publishing->op->done || publishing->probes.pending > 0) return false;
  if (!publishing->is_under_way) return true;
  publishing->is_under_way = false;
  al_op_answered(publishing->op);
  for (size_t i = 0; i < publishing->probes.count && publishing->code == AL_OK; i++)
    judge(publishing, publishing->probes.answers[i]);
  return true;
}

bool al_publish_poll(al_publish *publishing) {
  if (!al_publish_is_idle(publishing)) return false;
  publish_some(publishing);
  return !publishing->is_under_way && !publishing->op->done;
}

void al_publish_cancel(al_publish *publishing) { al_probes_cancel(&publishing->probes); }

void al_publish_free(al_publish *publishing) { al_probes_free(&publishing->probes); }
