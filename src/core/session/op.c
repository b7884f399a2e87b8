/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/op.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/session/turn.h"
#include "core/wire/connection.h"

#define LATE_MOST AL_SECOND /* so long after its deadline it may still wait for what it has given back */

/* ---- the session's list ----------------------------------------------------------------------------------------- */

static void list(al_op *op) {
  op->next = op->session->ops;
  op->session->ops = op;
}

static void unlist(al_op *op) {
  al_op **at = &op->session->ops;
  while (*at && *at != op) at = &(*at)->next;
  if (*at) *at = op->next;
}

void al_op_step(al_op *op) {
  assert(!op->done);
  op->step(op);
}

void al_ops_step(al_session *session) {
  for (al_op *op = session->ops, *next; op; op = next) {
    next = op->next; /* a step may take its own operation off the list, or end the next one */
    if (!op->done) al_op_step(op);
  }
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

al_op *al_op_new(al_session *session, size_t size, const char *name) {
  al_op *op = calloc(1, size);
  if (!op) return NULL;
  op->session = session;
  op->deadline = op->reply_by = op->wake = op->waits_since = AL_NEVER;
  op->is_inner = session->nests > 0;
  op->number = ++session->ops_begun;
  AL_OP_TRACE(op, "begins: \"%s\"", name);
  al_session_ref(session);
  return op;
}

static al_op *fail_forked(al_op *op) {
  snprintf(op->message, sizeof op->message,
           "%s: this process is a child of the one that connected; connect anew", al_code_name(AL_FORKED));
  op->code = AL_FORKED;
  op->done = true;
  op->over = true;
  return op;
}

al_op *al_op_start_at(al_op *op, int64_t deadline, void (*step)(al_op *), const char *name) {
  const al_trace *trace = op->session->holder.trace;
  if (al_session_forked(op->session)) return fail_forked(op);
  op->deadline = deadline;
  list(op);
  al_link_forget(&op->session->holder);
  al_link_forget(&op->session->quorum);
  al_link_forget(op->session->prober);
  if (op->session->closed && !op->is_final)
    al_op_fail(op, AL_CLOSED, "the connection was closed; open another");
  else if (trace && trace->flaw[0] && !op->is_final)
    al_op_fail(op, AL_PROTOCOL, "%s", trace->flaw);
  else
    al_op_next_at(op, step, name);
  return op;
}

void al_op_next_at(al_op *op, void (*step)(al_op *), const char *name) {
  al_op_enter_at(op, step, name);
  op->wake = AL_NEVER;
  al_op_step(op);
}

bool al_op_is_woken(const al_op *op) { return op->wake == AL_NEVER; }

void al_op_watch(al_op *op, al_claim *claim) {
  op->claim = claim;
  op->awaited = 0;
}

void al_op_ask(al_op *op) {
  op->reply_by = al_deadline_after(op->session->now, op->session->settings.timeout);
}

void al_op_answered(al_op *op) { op->reply_by = AL_NEVER; }

void al_op_nudge(const al_op *op) {
  if (op->outer) op->outer->wake = 0; /* due at once */
}

void al_op_waits(al_op *op) {
  if (op->waits_since != AL_NEVER) return;
  op->waits_since = op->session->now;
  op->session->op_changes++;
  if (op->outer) al_op_waits(op->outer);
}

static void end(al_op *op) {
  unlist(op);
  op->session->op_changes++;
  op->over = true;
}

/* It waits until the broker has back what it took. A broker that has just been silent has less time for that. */
static void linger(al_op *op) {
  int64_t now = op->session->now, most = op->session->settings.timeout;
  int64_t due = op->deadline > now ? op->deadline : now, late = most < LATE_MOST ? most : LATE_MOST;
  op->deadline = al_earlier(al_deadline_after(now, op->code == AL_UNREACHABLE ? late : most),
                            al_deadline_after(due, late));
  op->reply_by = op->wake = AL_NEVER;
}

static void done(al_op *op, al_code code) {
  op->code = code;
  op->done = true;
  if (code != AL_OK && op->returning > 0)
    linger(op);
  else
    end(op);
  AL_OP_TRACE(op, "%s", code == AL_OK ? "done" : op->message[0] ? op->message : "was dropped");
  if (op->is_acquire && !op->is_inner && code != AL_OK) op->session->counts.failed[code]++;
  if (op->outer)
    al_op_step(op->outer);
  else if (code != AL_OK)
    al_session_unnote(op->session, op->told);
}

/* May be called while `stop` runs for an operation that fails. What `stop` does may be what the operation waited for:
 * an al_session_close() waits for the end of the connection. */
void al_op_finish(al_op *op) {
  if (op->done) return;
  op->message[0] = '\0';
  done(op, AL_OK);
}

uint64_t al_op_owe(al_op *op) {
  while (op->outer) op = op->outer;
  op->returning++;
  return op->number;
}

void al_op_paid(al_session *session, uint64_t number) {
  al_op *op = session->ops;
  while (op && op->number != number) op = op->next;
  if (op && --op->returning == 0 && op->done) end(op);
}

/* `stop` is called once, because it may itself fail the operation. */
static void stop(al_op *op) {
  void (*stop)(al_op *) = op->stop;
  op->stop = NULL;
  if (stop) stop(op);
}

void al_op_fail(al_op *op, al_code code, const char *format, ...) {
  if (op->done) return;
  int length = snprintf(op->message, sizeof op->message, "%s: ", al_code_name(code));
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(op->message + length, sizeof op->message - (size_t)length, format, arguments);
  va_end(arguments);
  stop(op);
  if (!op->done) done(op, code);
}

const char *al_op_words(const al_op *op) {
  size_t code = strlen(al_code_name(op->code));
  return strlen(op->message) > code + 2 ? op->message + code + 2 : op->message;
}

void al_op_fail_link(al_op *op, const al_link *link) {
  const al_settings *settings = link->settings;
  op->told = link->told;
  if (link->code == AL_OK) /* another operation has requested the link again, and its code is reset */
    al_op_fail(op, AL_UNREACHABLE, "the connection to %s:%d was lost", settings->host, settings->port);
  else if (link->was_open)
    al_op_fail(op, link->code, "the connection to %s:%d was lost: %s", settings->host, settings->port,
               link->why);
  else
    al_op_fail(op, link->code, "%s", link->why);
}

void al_op_fail_channel(al_op *op, const al_link *link, const char *format, ...) {
  char words[AL_MESSAGE_SIZE] = "there is no memory for another channel";
  va_list arguments;
  va_start(arguments, format);
  if (!link->lacks_memory) vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  al_op_fail(op, link->lacks_memory ? AL_NO_MEMORY : AL_LIMIT, "%s", words);
}

bool al_op_needs(al_op *op, al_link *link) {
  if (al_link_is_open(link)) return true;
  if (al_link_is_lost(link))
    al_op_fail_link(op, link);
  else if (op->session->closed) /* nobody would close the connection */
    al_op_fail(op, AL_CLOSED, "the connection was closed");
  else
    al_link_want(link);
  return false;
}

bool al_op_has(al_op *op, const al_link *link) {
  if (op->done) return false;
  if (!al_link_is_open(link)) al_op_fail_link(op, link);
  return !op->done;
}

static void rest(al_op *op) { (void)op; }

void al_op_abandon(al_op *op, al_op *inner) {
  if (!inner) return;
  void (*step)(al_op *) = op->step;
  op->step = rest;
  al_op_fail(inner, AL_CLOSED, "it was abandoned");
  op->step = step;
  inner->outer = NULL;
}

void al_op_abort_link(al_op *op, al_link *link, al_code code, const char *why) {
  void (*step)(al_op *) = op->step;
  op->step = rest;
  al_connection_abort(link, code, "%s", why);
  op->step = step;
}

bool al_op_lost_prober(const al_op *op) {
  const al_session *session = op->session;
  return al_link_is_lost(session->prober) && al_link_is_open(&session->holder);
}

static void expire(al_op *op) {
  char words[AL_MESSAGE_SIZE] = "the timeout has passed";
  if (op->timeout_text) op->timeout_text(op, words);
  al_op_fail(op, AL_TIMEOUT, "%s", words);
}

void al_op_tick(al_op *op, int64_t now) {
  if (op->done) { /* also if another operation's tick ended a connection, and with it this one */
    if (now >= op->deadline && !op->over) end(op);
  } else if (now >= op->deadline) {
    expire(op);
  } else if (now >= op->reply_by) {
    al_op_fail(op, AL_UNREACHABLE, "the broker did not answer within %g s",
               (double)op->session->settings.timeout / (double)AL_SECOND);
  } else if (now >= op->wake) {
    op->wake = AL_NEVER;
    al_op_step(op);
  }
}

int64_t al_op_wake(const al_op *op) {
  int64_t wake = op->wake < op->reply_by ? op->wake : op->reply_by;
  if (op->inner && !op->inner->done) wake = al_earlier(wake, al_op_wake(op->inner));
  return wake < op->deadline ? wake : op->deadline;
}

void al_op_take_locks(al_op *op, al_op *inner) {
  op->lock = inner->lock;
  op->locks = inner->locks;
  op->locks_count = inner->locks_count;
  inner->lock = NULL;
  inner->locks = NULL;
  inner->locks_count = 0;
}

/* ---- for the outside -------------------------------------------------------------------------------------------- */

/* `done` is another thread's, except in a child process. */
bool al_op_done(const al_op *op) { return op->over || (al_session_forked(op->session) && op->done); }
al_code al_op_code(const al_op *op) { return op->code; }
const char *al_op_message(const al_op *op) { return op->message; }
size_t al_op_count(const al_op *op) { return op->count; }
size_t al_op_seen(const al_op *op) { return op->seen; }

al_slot al_op_slot(const al_op *op, size_t slot) {
  return slot >= 1 && slot <= op->seen ? op->slots[slot - 1] : (al_slot){false, false};
}

int64_t al_op_waiting(const al_op *op, char reason[AL_MESSAGE_SIZE]) {
  AL_TURN(op->session);
  if (op->done || op->waits_since == AL_NEVER) return -1;
  op->standing(op, reason);
  return op->session->now - op->waits_since;
}

al_lock *al_op_lock(al_op *op) {
  if (op->locks_given < op->locks_count) return op->locks[op->locks_given++];
  al_lock *lock = op->lock;
  op->lock = NULL;
  return lock;
}

static void op_free(al_op *op) {
  AL_TURN(op->session);
  if (!op->done) {
    stop(op);
    if (!op->done) done(op, AL_CLOSED);
    al_session_flush(op->session); /* what `stop` has queued is written now, not at the next pump */
  }
  if (!op->over) end(op);
  if (op->free) op->free(op);
  free(op->slots);
  free(op->locks);
}

void al_op_drop(al_op *op) {
  if (!op || al_session_forked(op->session)) return;
  al_session *session = op->session;
  op_free(op);
  free(op);
  al_session_unref(session);
}
