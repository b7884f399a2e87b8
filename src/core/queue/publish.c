/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/publish.h"

#include <stdio.h>

#include "core/session/session.h"

#define AT_ONCE 512

static void queue_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_mint *)context)->queue);
}

static void give_up(al_mint *mint, al_code code, const char *why) {
  mint->missing = 0;
  mint->code = code;
  snprintf(mint->why, sizeof mint->why, "%.159s", why);
}

static void publish_some(al_mint *mint) {
  al_session *session = mint->op->session;
  int some = mint->missing < AT_ONCE ? mint->missing : AT_ONCE;
  if (mint->missing > 0 && session->prober->blocked) give_up(mint, AL_BLOCKED, AL_NO_PUBLISHERS);
  if (mint->missing > 0 && !al_link_is_open(session->prober))
    give_up(mint, AL_UNREACHABLE, "the connection to publish on is lost");
  if (mint->missing <= 0) return;
  mint->missing -= some;
  mint->is_under_way = true;
  al_op_ask(mint->op);
  al_probes_begin(&mint->probes, mint->op, AL_PROBE_PUBLISH, (size_t)some, queue_name, mint);
}

void al_mint_begin(al_mint *mint, al_op *op, const char *queue, al_message message, int count) {
  mint->op = op;
  mint->queue = queue;
  mint->missing = count;
  mint->code = AL_OK;
  mint->probes.message = message;
}

static void unknown(al_mint *mint) {
  const al_link *link = mint->op->session->prober;
  if (al_link_is_lost(link))
    give_up(mint, link->code == AL_OK ? AL_UNREACHABLE : link->code, link->why);
  else
    give_up(mint, link->blocked ? AL_BLOCKED : AL_UNREACHABLE, mint->probes.text);
}

static void judge(al_mint *mint, al_answer answer) {
  switch (answer) {
    case AL_ANSWER_PRESENT:
      return;
    case AL_ANSWER_ABSENT:
      give_up(mint, AL_NOT_FOUND, "somebody deleted it");
      return;
    case AL_ANSWER_DENIED:
      give_up(mint, AL_REFUSED, mint->probes.text);
      return;
    case AL_ANSWER_UNAVAILABLE:
      give_up(mint, AL_UNAVAILABLE, "the broker did not take them");
      return;
    default:
      unknown(mint);
  }
}

bool al_mint_rests(al_mint *mint) {
  if (mint->op->done || mint->probes.pending > 0) return false;
  if (!mint->is_under_way) return true;
  mint->is_under_way = false;
  al_op_answered(mint->op);
  for (size_t i = 0; i < mint->probes.count && mint->code == AL_OK; i++) judge(mint, mint->probes.answers[i]);
  return true;
}

bool al_mint_over(al_mint *mint) {
  if (!al_mint_rests(mint)) return false;
  publish_some(mint);
  return !mint->is_under_way && !mint->op->done;
}

void al_mint_cancel(al_mint *mint) { al_probes_cancel(&mint->probes); }

void al_mint_free(al_mint *mint) { al_probes_free(&mint->probes); }
