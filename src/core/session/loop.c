/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/loop.h"

#include <stdlib.h>
#include <string.h>

#include "core/session/annex.h"
#include "core/session/claim.h"
#include "core/session/op.h"
#include "core/session/prober.h"
#include "core/session/turn.h"
#include "core/wire/connection.h"
#include "core/wire/heartbeat.h"

/* ---- made and freed --------------------------------------------------------------------------------------------- */

static void session_free(al_session *session);

static void tell_time(void *watcher) { al_session_look_at_clock(watcher); }

static void changed(void *watcher, al_link *link, al_link_change change) {
  al_session *session = watcher;
  al_session_note_change(session, link, change);
  if (change == AL_LINK_WENT_DOWN && link == &session->holder) al_claims_down(session);
  al_ops_step(session);
}

static void init(al_session *session, al_link *link, const char *role) {
  al_link_init(link, &session->settings, &session->asks_by->cluster, role, &session->random);
  link->changed = changed;
  link->tell_time = tell_time;
  link->watcher = session;
}

al_session *al_session_new(const al_settings *settings, uint64_t seed) {
  al_session *session = calloc(1, sizeof *session);
  if (!session) return NULL;
  session->refs = 1;
  session->end = session_free;
  session->settings = *settings;
  session->random = seed;
  session->cleanup_due = AL_NEVER;
  if (!al_prober_new(session, seed)) {
    free(session);
    return NULL;
  }
  init(session, &session->holder, "holder");
  init(session, &session->quorum, "quorum");
  return session;
}

bool al_session_list_nodes(al_session *session, const al_settings *settings, size_t count, bool is_shuffled) {
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) {
    links[i]->is_shuffled = is_shuffled;
    if (!al_link_readdress(links[i], settings, count)) return false;
  }
  return true;
}

static void session_free(al_session *session) {
  al_session_abort(session);
  if (al_session_forked(session)) return;
  if (session->transport_free) session->transport_free(session->transport); /* first: it may have a thread */
  if (session->holder.trace) session->holder.trace->end(session->holder.trace);
  al_claims_free(session);
  al_annexes_free(session);
  al_connection_free(&session->holder);
  al_connection_free(&session->quorum);
  al_prober_free(session->asks_by);
  free(session->notes);
  explicit_bzero(&session->settings, sizeof session->settings); /* they have a password */
  free(session);
}

void al_session_drop(al_session *session) {
  if (!session) return;
  al_session_abort(session);
  al_session_unref(session);
}

/* ---- pumped ----------------------------------------------------------------------------------------------------- */

void al_session_excuse(al_session *session, int64_t pumped_at) {
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) al_heartbeat_excuse(links[i], pumped_at);
}

void al_session_pump(al_session *session, int64_t now) {
  al_session_set_now(session, now);
  session->pumped_at = now;
  al_connection_pump(&session->holder, now);
  al_connection_pump(&session->quorum, now);
  al_session_excuse(session,
                    now); /* reading the holders may have taken long, and the prober was not read meanwhile */
  al_prober_pump(session->asks_by, session->now);
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next;
    al_op_tick(op, now); /* `now`: all that had arrived by then has been read from all links */
  }
  al_claims_sweep(session);
  al_session_flush(
      session); /* writes what the operations' steps have just queued, without waiting for the next pump */
}

int64_t al_session_deadline(const al_session *session) {
  int64_t deadline = AL_NEVER;
  for (const al_op *op = session->ops; op; op = op->next)
    if (op->deadline < deadline) deadline = op->deadline;
  return deadline;
}

int64_t al_session_wake(const al_session *session) {
  int64_t wake = al_earlier(al_connection_wake(&session->holder), al_connection_wake(&session->quorum));
  wake = al_earlier(wake, al_prober_wake(session->asks_by));
  if (session->cleanup_due < wake) wake = session->cleanup_due;
  for (const al_op *op = session->ops; op; op = op->next) {
    int64_t other = al_op_wake(op);
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
  al_op *op = al_op_new(session, sizeof *op, "");
  if (!op) return NULL;
  return al_op_start(op, opening, AL_NEVER);
}

static bool claims_are_gone(const al_session *session) {
  for (const al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->state != AL_CLAIM_GONE && !claim->is_denied) return false;
  return true;
}

/* A client that ends sooner would leave the next one to begin such a wait anew, for ever. */
static int64_t lingers_until(const al_session *session) {
  int64_t until = 0;
  for (const al_claim *claim = session->claims; claim; claim = claim->next)
    if (claim->lingers && claim->state != AL_CLAIM_GONE && claim->certain_until > until)
      until = claim->certain_until;
  return until;
}

static bool is_down(const al_link *link) {
  return link->state == AL_LINK_IDLE || link->state == AL_LINK_DOWN;
}

static void closing_links(al_op *op) {
  al_link *links[AL_LINKS];
  al_session_links(op->session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (!is_down(links[i])) return;
  al_op_finish(op);
}

static void close_link(al_link *link, int64_t deadline) {
  if (link->blocked) /* the broker would not read connection.close, and no lock is on this link */
    al_connection_abort(link, AL_CLOSED, "the connection was closed");
  else
    al_connection_close(link, deadline);
}

static void closing_claims(al_op *op) {
  al_session *session = op->session;
  int64_t timeout = session->settings.timeout, late_at = op->reply_by - timeout / 2;
  if (!claims_are_gone(session) && session->now < late_at) {
    op->wake = late_at;
    return;
  }
  op->reply_by = al_earlier(op->reply_by, al_deadline_after(session->now, timeout));
  al_op_enter(op, closing_links);
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  al_connection_close(links[0], op->reply_by); /* the holder, which the broker reads also during an alarm */
  for (int i = 1; i < AL_LINKS; i++) close_link(links[i], op->reply_by);
  closing_links(op);
}

static void closing_stop(al_op *op) { al_session_abort(op->session); }

al_op *al_session_close(al_session *session) {
  AL_TURN(session);
  al_op *op = al_op_new(session, sizeof *op, "");
  if (!op) return NULL;
  op->is_final = true;
  for (al_op *other = session->ops, *next; other; other = next) {
    next = other->next;
    if (other->is_final && other->watches_claims)
      continue; /* a close that is under way: it goes on, beside this one */
    al_op_fail(other, AL_CLOSED, "the connection was closed");
  }
  for (al_claim *claim = session->claims; claim; claim = claim->next) al_claim_release(claim);
  op->stop = closing_stop;
  op->watches_claims = true;
  al_op_ask(op);
  int64_t lingers = lingers_until(session);
  if (lingers > 0) op->reply_by = al_deadline_after(lingers, session->settings.timeout);
  if (session->closed) return al_op_start(op, closing_links, AL_NEVER);
  al_op_start(op, closing_claims, AL_NEVER);
  session->closed = true;
  return op;
}

/* ---- aborting --------------------------------------------------------------------------------------------------- */

/* In a child process: the ports are its parent's. */
static void leave_ports(al_session *session) {
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) {
    al_port *port = links[i]->port;
    links[i]->port = NULL;
    if (port) port->kind->close(port);
  }
}

void al_session_abort(al_session *session) {
  if (al_session_forked(session)) {
    leave_ports(session);
    return;
  }
  AL_TURN(session);
  session->closed = true;
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) links[i]->changed = NULL;
  for (int i = 0; i < AL_LINKS; i++) al_connection_abort(links[i], AL_CLOSED, "the connection was closed");
  al_claims_down(session);
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next;
    al_op_fail(op, AL_CLOSED, "the connection was closed");
  }
}

const char *al_session_cluster(const al_session *session) { return session->asks_by->cluster.name; }
