/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/bolt_check.h"

#include "core/base/name.h"
#include "core/session/session.h"

static void bolt_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  const al_bolt_check *bolts = context;
  char queue[AL_NAME_SIZE];
  bolts->name(bolts->context, index, queue);
  al_name(out, AL_SUFFIX_BOLT, queue);
}

void al_bolt_check_begin(al_bolt_check *bolts, al_op *op, al_answer *answers, size_t count,
                         al_probe_name *name, const void *context) {
  bolts->op = op;
  bolts->answers = answers;
  bolts->count = count;
  bolts->next = 0;
  bolts->name = name;
  bolts->context = context;
  bolts->inspect = (al_inspect){.op = op};
  if (!al_probing_has(op, AL_PROBE_AUTO)) return;
  al_op_ask(op);
  al_probes_begin(&bolts->probes, op, AL_MESSAGE_PROBE, AL_PROBE_AUTO, count, bolt_name, bolts);
}

/* A bolt whose probe is not answered may be shut, too. A bolt whose node is down keeps nobody out; the inspection
 * tells that. */
static bool may_be_shut(const al_bolt_check *bolts, size_t index) {
  return bolts->answers[index] == AL_ANSWER_ABSENT && bolts->probes.answers[index] != AL_ANSWER_ABSENT;
}

/* True if one more bolt must be inspected. */
static bool look_at_next(al_bolt_check *bolts) {
  char bolt[AL_NAME_SIZE];
  while (bolts->next < bolts->count && !may_be_shut(bolts, bolts->next)) bolts->next++;
  if (bolts->next == bolts->count) return false;
  bolt_name(bolts, bolts->next++, bolt);
  al_inspect_begin(&bolts->inspect, bolts->op, &bolts->op->session->holder, bolt);
  return true;
}

static bool fail_if_unknown(al_bolt_check *bolts) {
  for (size_t i = 0; i < bolts->count; i++)
    if (bolts->probes.answers[i] == AL_ANSWER_UNKNOWN) return al_probes_undecided(&bolts->probes, i);
  return false;
}

bool al_bolt_check_poll(al_bolt_check *bolts) {
  if (bolts->probes.pending > 0 || !al_inspect_poll(&bolts->inspect)) return false;
  if (bolts->next == 0 && fail_if_unknown(bolts)) return false;
  if (bolts->next > 0 && bolts->inspect.consumers > 0)
    bolts->answers[bolts->next - 1] = AL_ANSWER_UNAVAILABLE;
  if (look_at_next(bolts)) return false;
  al_op_answered(bolts->op);
  return true;
}

void al_bolt_check_cancel(al_bolt_check *bolts) {
  al_probes_cancel(&bolts->probes);
  al_inspect_cancel(&bolts->inspect);
}

void al_bolt_check_free(al_bolt_check *bolts) { al_probes_free(&bolts->probes); }
