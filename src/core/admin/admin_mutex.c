/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/admin_mutex.h"

#include <stdio.h>

#include "core/session/session.h"

static void retry_later(al_admin_mutex *mutex) {
  al_session *session = mutex->op->session;
  mutex->op->wake = session->now + al_backoff_next(&mutex->wait, &session->random);
}

static void claim(al_admin_mutex *mutex) {
  const al_exclusive *other = al_exclusive_find(mutex->op->session, mutex->queue);
  if (other) { /* another caller on this connection, or the rest of this operation's last try */
    mutex->is_anothers |= other->claim.state != AL_CLAIM_UNDOING;
    retry_later(mutex);
    return;
  }
  if (!al_op_has(mutex->op, &mutex->op->session->holder)) return;
  al_op_ask(mutex->op);
  mutex->own = al_exclusive_begin(mutex->op, &(al_exclusive_plan){.queue = mutex->queue});
}

void al_admin_mutex_begin(al_admin_mutex *mutex, al_op *op, const char *name, const char *queue) {
  *mutex = (al_admin_mutex){.op = op, .name = name, .wait = AL_BACKOFF_ADMIN};
  snprintf(mutex->queue, sizeof mutex->queue, "%s", queue);
  claim(mutex);
}

static void forget(al_admin_mutex *mutex) {
  al_claim_leave(&mutex->own->claim);
  mutex->own = NULL;
  al_op_watch(mutex->op, NULL);
}

static void mutex_name(const void *context, size_t index, char out[AL_NAME_SIZE]) {
  (void)index;
  snprintf(out, AL_NAME_SIZE, "%s", ((const al_admin_mutex *)context)->queue);
}

/* Another administrator holds the mutex, or a queue that is not exclusive stands under its name and will never go
 * away. */
static void found_taken(al_admin_mutex *mutex) {
  mutex->is_anothers = true;
  retry_later(mutex);
  if (mutex->squatter.op && !mutex->squatter.is_ours) return; /* that is known */
  al_squatter_begin(&mutex->squatter, mutex->op, 1, mutex_name, mutex);
}

static void missed(al_admin_mutex *mutex) {
  const al_claim *claim = &mutex->own->claim; /* it stays, though it is left, until this step is over */
  al_code code = claim->code;
  forget(mutex);
  if (al_link_is_lost(&mutex->op->session->holder))
    al_op_fail_link(mutex->op, &mutex->op->session->holder);
  else if (code == AL_CONTENDED)
    found_taken(mutex);
  else if (code == AL_REMOVED) /* the queue was just ending, for instance as its administrator has died */
    retry_later(mutex);
  else
    al_op_fail(mutex->op, code, "the administration mutex of \"%s\": %s", mutex->name, claim->why);
}

bool al_admin_mutex_poll_taken(al_admin_mutex *mutex) {
  al_op *op = mutex->op;
  if (mutex->own && mutex->own->claim.state == AL_CLAIM_CLAIMING) return false;
  if (mutex->own) {
    al_op_answered(op);
    mutex->is_anothers = false;
    if (mutex->own->claim.state == AL_CLAIM_HELD) return true;
    missed(mutex);
  } else if (al_link_is_lost(&op->session->holder)) {
    al_op_fail_link(op, &op->session->holder);
  } else if (al_op_is_woken(op) && !mutex->squatter.channel) {
    claim(mutex);
  }
  return false;
}

bool al_admin_mutex_held(al_admin_mutex *mutex) {
  if (mutex->op->done) return false;
  if (mutex->own->claim.state == AL_CLAIM_HELD) return true;
  al_op_fail(mutex->op, AL_LOST, "the administration mutex of \"%s\": %s", mutex->name,
             mutex->own->claim.why);
  return false;
}

void al_admin_mutex_listen(al_admin_mutex *mutex, void (*on)(al_op *op, const al_event *event)) {
  mutex->own->on = on;
  mutex->own->on_op = mutex->op;
}

void al_admin_mutex_release(al_admin_mutex *mutex) {
  al_op_ask(mutex->op);
  mutex->own->on = NULL;
  al_claim_release(&mutex->own->claim);
}

bool al_admin_mutex_poll_released(al_admin_mutex *mutex) {
  if (mutex->own->claim.state != AL_CLAIM_GONE && !mutex->own->claim.is_denied)
    return false; /* a denied claim needs no wait: its queue ends with its channel */
  al_op_answered(mutex->op);
  forget(mutex);
  return true;
}

bool al_admin_mutex_explain(const al_admin_mutex *mutex, int64_t time, char out[AL_MESSAGE_SIZE]) {
  if (!mutex->is_anothers) return false;
  snprintf(out, AL_MESSAGE_SIZE, "another administrator was at work on \"%s\" for all of %g s", mutex->name,
           (double)time / (double)AL_SECOND);
  return true;
}

void al_admin_mutex_drop(al_admin_mutex *mutex) {
  al_squatter_cancel(&mutex->squatter);
  if (!mutex->own) return;
  mutex->own->on = NULL;
  al_claim_release(&mutex->own->claim);
  forget(mutex);
}
