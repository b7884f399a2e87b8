/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/admin/session.h"
#include "cli/admin/status.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static al_op *begin_slots(al_session *session, const admin_options *options) {
  al_admin_options how;
  al_admin_options_init(&how);
  how.quorum = options->quorum;
  how.revoke = options->revoke;
  how.wait = options->wait;
  how.fenced = options->fence; /* of destroy: begin_fence() */
  if (options->timeout >= 0) how.timeout = options->timeout;
  switch (options->verb->id) {
    case ADMIN_CREATE:
      return al_admin_create(session, options->name, options->number, &how);
    case ADMIN_ADD:
      return al_admin_add(session, options->name, options->number, &how);
    case ADMIN_REMOVE:
      return al_admin_remove(session, options->name, options->number, &how);
    case ADMIN_RESIZE:
      return al_admin_resize(session, options->name, options->number, &how);
    case ADMIN_DESTROY:
      return al_admin_destroy(session, options->name, &how);
    case ADMIN_REPAIR:
      return al_admin_repair(session, options->name, &how);
    case ADMIN_SLOTS:
      return al_admin_slots(session, options->name, &how);
    default:
      return al_admin_status(session, options->name, &how);
  }
}

static al_op *begin_permits(al_session *session, const admin_options *options) {
  al_token_admin_options how;
  al_token_admin_options_init(&how);
  how.quorum = options->quorum;
  how.wait = options->wait;
  if (options->timeout >= 0) how.timeout = options->timeout;
  switch (options->verb->id) {
    case ADMIN_CREATE:
      return al_token_admin_create(session, options->name, options->number, &how);
    case ADMIN_ADD:
      return al_token_admin_add(session, options->name, options->number, &how);
    case ADMIN_REMOVE:
      return al_token_admin_remove(session, options->name, options->number, &how);
    case ADMIN_RESIZE:
      return al_token_admin_resize(session, options->name, options->number, &how);
    case ADMIN_DESTROY:
      return al_token_admin_destroy(session, options->name, &how);
    case ADMIN_REPAIR:
      return al_token_admin_repair(session, options->name, &how);
    default:
      return al_token_admin_slots(session, options->name, &how);
  }
}

static al_op *begin_revoke(al_session *session, const admin_options *options) {
  al_admin_options how;
  al_admin_options_init(&how);
  how.wait = options->wait;
  switch (options->lock) {
    case ADMIN_MUTEX:
      return al_mutex_revoke(session, options->name, &how);
    case ADMIN_READERS:
      return al_rwlock_revoke_readers(session, options->name, &how);
    case ADMIN_WRITER:
      return al_rwlock_revoke_writer(session, options->name, &how);
    default:
      return al_admin_revoke(session, options->name, options->number, &how);
  }
}

static al_op *begin_forget(al_session *session, const admin_options *options) {
  switch (options->lock) {
    case ADMIN_MUTEX:
      return al_mutex_forget_fence(session, options->name);
    case ADMIN_READERS:
    case ADMIN_WRITER:
      return al_rwlock_forget_fence(session, options->name);
    default:
      return al_admin_forget_fence(session, options->name);
  }
}

static al_op *begin(al_session *session, const admin_options *options) {
  if (options->verb->id == ADMIN_REVOKE) return begin_revoke(session, options);
  if (options->verb->id == ADMIN_FORGET_FENCE) return begin_forget(session, options);
  return options->lock == ADMIN_PERMITS ? begin_permits(session, options) : begin_slots(session, options);
}

/* With --fence, what follows once the semaphore is destroyed; NULL: nothing does. */
static al_op *begin_fence(al_session *session, const admin_options *options, bool *is_any) {
  *is_any = options->fence && options->verb->id == ADMIN_DESTROY;
  return *is_any ? al_admin_forget_fence(session, options->name) : NULL;
}

/* ---- ending ----------------------------------------------------------------------------------------------------- */

static int fail(al_code code, const char *message) {
  cli_error("%s", message);
  return cli_exit_of(code);
}

static void tell_asked(const admin_options *options) {
  bool is_asked = options->verb->id == ADMIN_REVOKE && options->wait <= 0;
  if (is_asked) cli_warn("asked; the holder decides. --wait S waits until it has released");
}

static int done(al_session *session, const admin_options *options, const al_op *op) {
  bool is_any;
  char message[AL_MESSAGE_SIZE];
  admin_status status = admin_status_of(options, op);
  bool asks = options->verb->id == ADMIN_SLOTS || options->verb->id == ADMIN_STATUS;
  if (asks && status.count == 0 && status.seen == 0) {
    cli_error("not_found: there is no %s \"%s\"; \"amqp-lock-admin who\" shows who holds any kind of lock",
              options->lock == ADMIN_PERMITS ? "token semaphore" : "semaphore", options->name);
    return CLI_EXIT_NOT_FOUND;
  }
  al_op *fence = begin_fence(session, options, &is_any);
  al_code code = is_any ? admin_session_await(session, fence, message) : AL_OK;
  al_op_drop(fence);
  admin_status_print(options, &status, op);
  tell_asked(options);
  return code == AL_OK ? 0 : fail(code, message);
}

/* ---- watching --------------------------------------------------------------------------------------------------- */

static bool is_for_good(al_code code) {
  return code == AL_REFUSED || code == AL_AUTH || code == AL_VHOST || code == AL_TLS || code == AL_SQUATTED ||
         code == AL_CLOSED || code == AL_NO_MEMORY;
}

/* Ends at a signal, or for a reason that does not go away. */
static int watch(al_session *session, const admin_options *options) {
  char message[AL_MESSAGE_SIZE], before[AL_MESSAGE_SIZE] = "";
  char *last = NULL;
  al_code code;
  for (;; admin_session_pause(session)) {
    al_op *op = begin(session, options);
    code = admin_session_await(session, op, message);
    admin_status status = admin_status_of(options, op);
    char *now = code == AL_OK ? admin_status_text(options, &status, op) : NULL;
    al_op_drop(op);
    if (code != AL_OK && strcmp(message, before) != 0) cli_error("%s", message);
    snprintf(before, sizeof before, "%s", message);
    if (is_for_good(code)) break;
    if (now && (!last || strcmp(now, last) != 0)) puts(now);
    if (now) {
      free(last);
      last = now;
    }
    if (fflush(stdout) != 0) break;
  }
  free(last);
  return code == AL_OK ? CLI_EXIT_SOFTWARE : cli_exit_of(code);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static int act(al_session *session, const admin_options *options) {
  char message[AL_MESSAGE_SIZE];
  al_op *op = begin(session, options);
  al_code code = admin_session_await(session, op, message);
  int status = code == AL_OK ? done(session, options, op) : fail(code, message);
  al_op_drop(op);
  return status;
}

int admin_verb_run(admin_options *options) {
  al_session *session = admin_session_open(options);
  int status = options->verb->id == ADMIN_WATCH ? watch(session, options) : act(session, options);
  admin_session_close(session);
  return status;
}
