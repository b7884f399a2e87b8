/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/line.h"

#include "core/base/backoff.h"
#include "core/session/prober.h"
#include "core/session/session.h"

void al_line_init(al_line *line, al_op *op, al_resource *resource, const al_acquire_options *options,
                  al_line_kind kind) {
  *line = (al_line){.op = op, .resource = resource, .options = options, .kind = kind};
}

static bool makes_bell(const al_line *line) { return line->kind != AL_LINE_KEPT; }

/* ---- what it knows ---------------------------------------------------------------------------------------------- */

bool al_line_is_joining(const al_line *line) { return al_bell_is_arriving(line->bell); }

bool al_line_is_empty(const al_line *line) {
  return al_bell_is_out(line->bell) || al_bell_is_first(line->bell);
}

bool al_line_has_token(const al_line *line) { return al_bell_has_token(line->bell); }

/* RabbitMQ 4.3 does not answer for more than a minute when the bell's node was killed. */
int64_t al_line_mute_at(const al_line *line) {
  return al_deadline_after(line->bell->consumer.since,
                           al_earlier(line->options->poll, line->op->session->settings.timeout));
}

bool al_line_has_gone(const al_line *line) {
  return al_bell_is_out(line->bell) && line->before != AL_CONSUMER_OUT;
}

bool al_line_is_outdated(const al_line *line) {
  bool is_rung = al_line_has_token(line) && line->before != AL_CONSUMER_HAS;
  return is_rung || (al_line_has_gone(line) && line->bell->found != AL_BELL_MISSING);
}

/* ---- coming ----------------------------------------------------------------------------------------------------- */

bool al_line_make(al_line *line) {
  if (!line->bell) {
    line->bell = al_bell_new(line->op, line->resource->bell, line->options->priority, makes_bell(line));
    line->before = AL_CONSUMER_OUT;
  }
  if (!line->bell) al_op_fail(line->op, AL_NO_MEMORY, "waiting for \"%s\"", line->resource->name);
  return line->bell;
}

static void arrive(al_line *line) {
  if (!al_resource_may_have_bell(line->resource)) return;
  al_bell_arrive(line->bell, !makes_bell(line) && !line->has_asked && line->resource->memory->known == 0);
  line->has_asked = true;
}

/* Others may still wait. This acquire then joins the line before it searches, and they have their chance first. */
static bool is_polite(const al_line *line) {
  bool is_lining_up = line->options->timeout > 0 && line->kind != AL_LINE_SHARED;
  return line->options->fair || (is_lining_up && al_resource_was_awaited(line->resource));
}

bool al_line_begin_search(al_line *line) {
  if (!al_line_make(line)) return false;
  if (line->op->session->now >= al_line_mute_at(line)) al_bell_give_up(line->bell);
  al_line_note_missing(line);
  line->joins_first = line->joins_first || is_polite(line);
  if (!makes_bell(line) || line->joins_first) arrive(line);
  line->before = line->bell->consumer.state;
  return true;
}

bool al_line_join(al_line *line) {
  if (!makes_bell(line) || (line->joins_first && line->before != AL_CONSUMER_SUBSCRIBING)) return false;
  line->joins_first = true;
  arrive(line);
  return !al_bell_is_out(line->bell);
}

/* ---- ringing and leaving ---------------------------------------------------------------------------------------- */

bool al_line_ring(al_line *line) { return al_prober_ring(line->op->session, line->bell->queue); }

void al_line_note_missing(al_line *line) {
  if (!al_bell_take_missing(line->bell)) return;
  al_resource_miss_bell(line->resource);
  al_session_note(
      line->op->session, false, AL_OK, line->resource->name,
      "the bell \"%s\" does not exist, may not be read, or does not answer: waiters notice releases "
      "only by their own rechecks",
      line->bell->queue);
}

/* Where others hold the lock beside us, our leaving makes room for no waiter. A bell that was missing within the last
 * minute counts as missing, even if this acquire has not subscribed to it. */
void al_line_leave(al_line *line, al_exclusive *own, bool was_quick) {
  if (line->bell && own && line->kind != AL_LINE_SHARED)
    al_exclusive_ring(own, line->bell, was_quick, al_resource_may_have_bell(line->resource));
  else
    al_bell_leave(line->bell, false);
  line->bell = NULL;
}
