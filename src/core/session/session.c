/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/session/op.h"
#include "core/session/turn.h"

void al_session_step(al_session *session) {
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next; /* a step may take its own operation off the list */
    op->step(op);
  }
}

void al_session_note_change(al_session *session, const al_link *link, al_link_change change) {
  const al_settings *s = link->settings;
  if (change == AL_LINK_OPENED)
    al_session_note(session, false, "%s connection to %s:%d is open", link->role, s->host, s->port);
  else if (change == AL_LINK_BLOCKED)
    al_session_note(session, true, "the broker has an alarm and reads no publishers");
  else if (change == AL_LINK_UNBLOCKED)
    al_session_note(session, false, "the broker's alarm is over: it reads publishers again");
  else if (link->code != AL_CLOSED)
    al_session_note(session, true, "%s connection to %s:%d: %s", link->role, s->host, s->port, link->why);
}

static void set_now(al_session *session, int64_t now) {
  session->now = session->holder.now = session->prober->link.now = now;
}

static void tell_time(void *watcher) {
  al_session *session = watcher;
  if (session->clock) set_now(session, session->clock(session));
}

static void holder_changed(void *watcher, al_link *holder, al_link_change change) {
  al_session *session = watcher;
  al_session_note_change(session, holder, change);
  if (change == AL_LINK_WENT_DOWN) {
    al_claims_down(session);
    al_origins_forget(session);
  }
  al_session_step(session);
}

al_session *al_session_new(const al_settings *settings, uint64_t seed, al_session *lender) {
  al_session *session = calloc(1, sizeof *session);
  if (!session) return NULL;
  session->refs = 1;
  session->settings = *settings;
  session->random = seed;
  session->leavings_at = AL_NEVER;
  if (lender)
    al_prober_use(lender->prober, session);
  else if (!al_prober_new(session, seed)) {
    free(session);
    return NULL;
  }
  al_link_init(&session->holder, &session->settings, &session->prober->cluster, "holder", &session->random);
  session->holder.changed = holder_changed;
  session->holder.tell_time = tell_time;
  session->holder.watcher = session;
  return session;
}

/* Whether the prober comes and goes with this session. */
static bool owns_prober(const al_session *session) { return session->prober->owner == session; }

void al_session_ref(al_session *session) { session->refs++; }

al_session *al_turn_take(al_session *session) {
  if (session->take_turn) session->take_turn(session);
  return session;
}

void al_turn_give(al_session **session) {
  if ((*session)->give_turn) (*session)->give_turn(*session);
}

bool al_session_list_nodes(al_session *session, const al_settings *settings, size_t count, bool is_shuffled) {
  al_link *links[] = {&session->holder, owns_prober(session) ? &session->prober->link : NULL};
  for (int i = 0; i < 2 && links[i]; i++) {
    links[i]->is_shuffled = is_shuffled;
    if (!al_link_readdress(links[i], settings, count)) return false;
  }
  return true;
}

bool al_session_forked(const al_session *session) {
  return session->has_forked && session->has_forked(session);
}

static void session_free(al_session *session) {
  al_session_abort(session);
  if (al_session_forked(session)) return;
  if (session->transport_free) session->transport_free(session->transport); /* first: it may have a thread */
  al_claims_free(session);
  al_origins_forget(session);
  al_link_free(&session->holder);
  al_prober_leave(session->prober, session);
  free(session->notes);
  free(session);
}

void al_session_unref(al_session *session) {
  if (--session->refs == 0) session_free(session);
}

void al_session_drop(al_session *session) {
  if (!session) return;
  al_session_abort(session);
  al_session_unref(session);
}

void al_session_list(al_session *session, al_op *op) {
  op->next = session->ops;
  session->ops = op;
}

void al_session_unlist(al_session *session, al_op *op) {
  al_op **at = &session->ops;
  while (*at && *at != op) at = &(*at)->next;
  if (*at) *at = op->next;
}

void al_session_ticket(al_session *session, char out[AL_TICKET_SIZE]) {
  uint64_t number = al_random(&session->random);
  for (int i = 15; i >= 0; i--, number >>= 4) out[i] = "0123456789abcdef"[number & 15];
  out[16] = '\0';
}

void al_session_set_time(al_session *session, int64_t now, double wall_now) {
  set_now(session, now);
  session->wall = wall_now - (double)now / (double)AL_SECOND;
}

#define NOTES_MOST 16

void al_session_note(al_session *session, bool is_warning, const char *format, ...) {
  if (!session->notes) session->notes = calloc(NOTES_MOST, sizeof *session->notes);
  if (!session->notes) return;
  if (session->notes_count == NOTES_MOST) {
    session->notes_first++;
    session->notes_count--;
  }
  al_note *note = &session->notes[(session->notes_first + session->notes_count++) % NOTES_MOST];
  va_list arguments;
  va_start(arguments, format);
  note->is_warning = is_warning;
  vsnprintf(note->text, sizeof note->text, format, arguments);
  va_end(arguments);
}

bool al_session_news(al_session *session, al_note *note) {
  AL_TURN(session);
  if (session->notes_count == 0) return false;
  session->notes_count--;
  *note = session->notes[session->notes_first++ % NOTES_MOST];
  return true;
}

void al_session_alert(al_session *session) {
  if (session->closed) return;
  session->alerts++;
  if (session->alarm) session->alarm(session, true);
}

uint64_t al_session_alerts(al_session *session) {
  if (al_session_forked(session)) return 0;
  AL_TURN(session); /* or the alarm of a later alert could be taken for the one that is silenced here */
  if (session->alarm) session->alarm(session, false);
  return session->alerts_seen = session->alerts;
}

void al_session_excuse(al_session *session, int64_t pumped_at) {
  al_link_excuse(&session->holder, pumped_at);
  if (owns_prober(session)) al_link_excuse(&session->prober->link, pumped_at);
}

void al_session_pump(al_session *session, int64_t now) {
  set_now(session, now);
  al_link_pump(&session->holder, now);
  al_session_excuse(session, now); /* the prober has waited as long as the holder took to read */
  if (owns_prober(session)) al_prober_pump(session->prober, session->now);
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next;
    al_op_tick(op, now); /* by which time both links were read */
  }
  al_claims_sweep(session);
  al_session_flush(
      session); /* what the operations' steps have just written leaves now, not at the next turn */
}

void al_session_flush(al_session *session) {
  if (session->holder.port) session->holder.port->kind->flush(session->holder.port);
  al_port *prober = session->prober->link.port;
  if (prober) prober->kind->flush(prober);
}

int64_t al_session_deadline(const al_session *session) {
  int64_t deadline = AL_NEVER;
  for (const al_op *op = session->ops; op; op = op->next)
    if (op->deadline < deadline) deadline = op->deadline;
  return deadline;
}

int64_t al_session_wake(const al_session *session) {
  int64_t wake = al_link_wake(&session->holder);
  int64_t other = owns_prober(session) ? al_link_wake(&session->prober->link) : AL_NEVER;
  if (other < wake) wake = other;
  if (session->leavings_at < wake) wake = session->leavings_at;
  for (const al_op *op = session->ops; op; op = op->next) {
    other = al_op_wake(op);
    if (other < wake) wake = other;
  }
  return wake;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

static void opening(al_op *op) {
  if (al_op_needs(op, &op->session->holder)) al_op_finish(op);
}

al_op *al_session_open(al_session *session) {
  AL_TURN(session);
  al_op *op = al_op_new(session, sizeof *op);
  if (!op) return NULL;
  al_link_want(&session->holder);
  return al_op_start(op, opening, AL_NEVER);
}

static bool claims_are_gone(const al_session *session) {
  for (const al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->state != AL_CLAIM_GONE && !claim->is_denied) return false;
  return true;
}

static bool is_down(const al_link *link) {
  return link->state == AL_LINK_IDLE || link->state == AL_LINK_DOWN;
}

static void closing_links(al_op *op) {
  const al_session *session = op->session;
  if (is_down(&session->holder) && (!owns_prober(session) || is_down(&session->prober->link)))
    al_op_finish(op);
}

static void close_prober(al_session *session, int64_t deadline) {
  al_link *link = &session->prober->link;
  if (link->blocked) /* it would not be read, and holds nothing */
    al_link_abort(link, AL_CLOSED, "the connection was closed");
  else
    al_link_close(link, deadline);
}

static void closing_claims(al_op *op) {
  al_session *session = op->session;
  bool is_late = session->now >= op->reply_by - session->settings.timeout / 2;
  if (!claims_are_gone(session) && !is_late && al_link_is_open(&session->holder)) {
    op->wake = op->reply_by - session->settings.timeout / 2;
    return;
  }
  op->step = closing_links;
  al_link_close(&session->holder, op->reply_by);
  if (owns_prober(session)) close_prober(session, op->reply_by);
  closing_links(op);
}

static void closing_stop(al_op *op) { al_session_abort(op->session); }

al_op *al_session_close(al_session *session) {
  AL_TURN(session);
  al_op *op = al_op_new(session, sizeof *op);
  if (!op) return NULL;
  bool again = session->closed;
  session->closed = false; /* closing is the one thing a closed session still does */
  for (al_op *other = session->ops, *next; other; other = next) {
    next = other->next;
    if (other->watches_claims) continue; /* a close under way: this one waits beside it */
    al_op_fail(other, AL_CLOSED, "the connection was closed");
  }
  for (al_claim *claim = session->claims; claim; claim = claim->next) al_claim_release(claim);
  op->stop = closing_stop;
  op->watches_claims = true;
  al_op_ask(op);
  al_op_start(op, again ? closing_links : closing_claims, AL_NEVER);
  session->closed = true;
  return op;
}

static void close_descriptors(al_session *session) {
  al_port *holder = session->holder.port, *prober = owns_prober(session) ? session->prober->link.port : NULL;
  session->holder.port = NULL;
  if (holder) holder->kind->close(holder);
  if (!prober) return;
  session->prober->link.port = NULL;
  prober->kind->close(prober);
}

void al_session_abort(al_session *session) {
  if (al_session_forked(session)) {
    close_descriptors(session);
    return;
  }
  AL_TURN(session);
  session->closed = true;
  session->holder.changed = NULL;
  al_link_abort(&session->holder, AL_CLOSED, "the connection was closed");
  al_prober_disown(session->prober, session);
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next;
    al_op_fail(op, AL_CLOSED, "the connection was closed");
  }
}
