/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Operations that ask holders to release, or wait until they have. */
#include <stdio.h>

#include "core/admin/holder_wait.h"
#include "core/session/session.h"
#include "core/session/turn.h"

typedef struct wait_op {
  al_op op;
  char name[AL_NAME_SIZE];
  al_admin_options options;
  int64_t allowed;
  al_held held;
  int slot; /* to be revoked */
  al_holder_wait holders;
} wait_op;

static void wait_stop(al_op *op) { al_holder_wait_cancel(&((wait_op *)op)->holders); }

static void wait_free(al_op *op) { al_holder_wait_free(&((wait_op *)op)->holders); }

static void wait_explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const wait_op *self = (const wait_op *)op;
  if (self->holders.count > 0)
    al_holder_wait_explain(&self->holders, self->allowed, out);
  else if (self->held == AL_HELD_SLOTS)
    snprintf(out, AL_MESSAGE_SIZE, "no connection to ask for slot %d of \"%s\" within %g s", self->slot,
             self->name, (double)self->allowed / (double)AL_SECOND);
  else
    snprintf(out, AL_MESSAGE_SIZE, "no connection to ask for holders of \"%s\" within %g s", self->name,
             (double)self->allowed / (double)AL_SECOND);
}

static wait_op *wait_new(al_session *session, const char *name, const al_admin_options *options) {
  wait_op *self = (wait_op *)al_op_new(session, sizeof *self, name);
  if (!self) return NULL;
  al_admin_options_init(&self->options);
  if (options) self->options = *options;
  snprintf(self->name, sizeof self->name, "%s", name);
  self->allowed = self->options.timeout;
  self->op.stop = wait_stop;
  self->op.free = wait_free;
  self->op.timeout_text = wait_explain;
  return self;
}

static void wait_nothing(al_op *op) { (void)op; }

al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  al_request request = self->options.revoke ? AL_REQUEST_REVOKE : AL_REQUEST_NOTHING;
  al_op_start(&self->op, wait_nothing, al_deadline_after(session->now, self->allowed));
  if (!self->op.done) al_holder_wait_begin(&self->holders, &self->op, self->name, slots, count, request);
  return &self->op;
}

/* The time to wait begins when the links are open: it is the time that the holder has after it was asked. */
static void revoke_wanting_links(al_op *op) {
  wait_op *self = (wait_op *)op;
  int64_t wait = self->options.wait;
  al_request request = wait > 0 ? AL_REQUEST_REVOKE : AL_REQUEST_HOLDER;
  if (!al_probing_needs(op, al_holder_wait_probing(op->session, self->held, request))) return;
  if (wait > 0) {
    self->allowed = wait;
    op->deadline = al_deadline_after(op->session->now, wait);
  }
  if (self->held == AL_HELD_SLOTS)
    al_holder_wait_begin(&self->holders, op, self->name, &self->slot, 1, request);
  else
    al_holder_wait_begin_other(&self->holders, op, self->held, self->name, request);
}

static al_op *revoke(al_session *session, al_held held, const char *name, int slot,
                     const al_admin_options *options) {
  AL_TURN(session);
  wait_op *self = wait_new(session, name, options);
  if (!self) return NULL;
  self->held = held;
  self->slot = slot;
  return al_op_start(&self->op, revoke_wanting_links, al_deadline_after(session->now, self->allowed));
}

al_op *al_admin_revoke(al_session *session, const char *name, int slot, const al_admin_options *options) {
  return revoke(session, AL_HELD_SLOTS, name, slot, options);
}

al_op *al_mutex_revoke(al_session *session, const char *name, const al_admin_options *options) {
  return revoke(session, AL_HELD_MUTEX, name, 0, options);
}

al_op *al_rwlock_revoke_readers(al_session *session, const char *name, const al_admin_options *options) {
  return revoke(session, AL_HELD_READERS, name, 0, options);
}

al_op *al_rwlock_revoke_writer(al_session *session, const char *name, const al_admin_options *options) {
  return revoke(session, AL_HELD_DOOR, name, 0, options);
}
