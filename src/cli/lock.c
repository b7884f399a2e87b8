/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A semaphore is created only after an acquire has found that there is none: so a program that is started often does not
 * ask for the administration mutex each time. */
#include "cli/lock.h"

#include <signal.h>
#include <stdio.h>

#include "cli/report.h"
#include "cli/signals.h"

#define CREATE_LEAST (5 * AL_SECOND) /* for creating with -n, and when the caller's time is nearly over */
#define RACES_MOST 8                 /* races lost before a search counts as busy */

/* ---- beginning an acquire --------------------------------------------------------------------------------------- */

/* Defines a function that begins to acquire `object`, NULL if there was no memory for it, and drops the
 * caller's reference to it. Each kind of lock has a type of its own in the library, and functions of the same names. */
#define ACQUIRE(noun, verb)                                                                                  \
  static al_op *verb##_##noun(al_##noun *object, const al_acquire_options *how) {                            \
    al_op *op = object ? al_##noun##_##verb(object, how) : NULL;                                             \
    al_##noun##_drop(object);                                                                                \
    return op;                                                                                               \
  }

ACQUIRE(semaphore, acquire)
ACQUIRE(token_semaphore, acquire)
ACQUIRE(mutex, acquire)
ACQUIRE(fast_mutex, acquire)
ACQUIRE(rwlock, read)
ACQUIRE(rwlock, write)

static al_op *begin_kind(al_session *session, const cli_options *options, const al_acquire_options *how) {
  const char *name = options->name;
  al_semaphore_options slots = {.strategy = options->random ? AL_RANDOM : AL_ASCENDING,
                                .max_attempts = RACES_MOST,
                                .fenced = options->fenced};
  al_token_semaphore_options permits = {.quorum = options->quorum, .fenced = options->fenced};
  al_lock_options plain = {.max_attempts = RACES_MOST, .fenced = options->fenced};
  switch (options->kind) {
    case AL_LOCK_SLOT:
      return acquire_semaphore(al_semaphore_new(session, name, &slots), how);
    case AL_LOCK_PERMIT:
      return acquire_token_semaphore(al_token_semaphore_new(session, name, &permits), how);
    case AL_LOCK_FAST_MUTEX:
      return acquire_fast_mutex(al_fast_mutex_new(session, name), how);
    case AL_LOCK_READ:
      return read_rwlock(al_rwlock_new(session, name, &plain), how);
    case AL_LOCK_WRITE:
      return write_rwlock(al_rwlock_new(session, name, &plain), how);
    default:
      return acquire_mutex(al_mutex_new(session, name, &plain), how);
  }
}

static al_op *begin(al_session *session, const cli_options *options, int64_t timeout) {
  al_acquire_options how;
  al_acquire_options_init(&how);
  how.timeout = timeout;
  how.fair = options->fair;
  how.priority = options->priority;
  how.patient = options->patient;
  if (options->poll > 0) how.poll = options->poll;
  return begin_kind(session, options, &how);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* Waits until the operation is done, and tells the progress. Signals that give up end the program meanwhile
 * (signals.h). */
static void await(al_session *session, al_op *op, cli_news *news) {
  char reason[AL_MESSAGE_SIZE];
  while (!al_op_done(op)) {
    al_native_wait(session, op);
    if (al_op_done(op)) break;
    int64_t waited = al_op_waiting(op, reason);
    if (waited >= 0) cli_news_waiting(news, waited, reason);
    cli_report_notes(session);
  }
}

static cli_result result_of(al_op *op) {
  cli_result result = {.code = AL_NO_MEMORY};
  if (!op) {
    snprintf(result.message, sizeof result.message, "no_memory: there was none left");
    return result;
  }
  result.code = al_op_code(op);
  snprintf(result.message, sizeof result.message, "%s", al_op_message(op));
  return result;
}

static al_lock *try(al_session *session, const cli_options *options, cli_news *news, int64_t timeout,
                    cli_result *result) {
  al_op *op = begin(session, options, timeout);
  if (op) await(session, op, news);
  *result = result_of(op);
  al_lock *lock = op ? al_op_lock(op) : NULL;
  al_op_drop(op);
  return lock;
}

/* ---- creating --------------------------------------------------------------------------------------------------- */

static al_op *begin_creating(al_session *session, const cli_options *options, int64_t timeout) {
  if (options->kind == AL_LOCK_SLOT) {
    al_admin_options how;
    al_admin_options_init(&how);
    how.quorum = options->quorum;
    how.timeout = timeout;
    return al_admin_create(session, options->name, options->slots, &how);
  }
  al_token_admin_options how;
  al_token_admin_options_init(&how);
  how.quorum = options->quorum;
  how.timeout = timeout;
  return al_token_admin_create(session, options->name, options->permits, &how);
}

/* A client that ended in the middle would leave a semaphore of fewer slots, which nobody resizes. So signals that give
 * up wait until it is created, for the operation's timeout at most. */
static cli_result create(al_session *session, const cli_options *options, cli_news *news, int64_t left) {
  sigset_t before = cli_signals_defer();
  if (left < CREATE_LEAST) left = CREATE_LEAST;
  al_op *op = begin_creating(session, options, left == AL_NEVER ? 6 * CREATE_LEAST : left);
  if (op) await(session, op, news);
  cli_result result = result_of(op);
  al_op_drop(op);
  cli_signals_restore(&before);
  return result;
}

/* Whether it is worth another acquire: somebody else may have created it, or be about to. */
static bool may_exist_now(const cli_result *created, bool is_patient) {
  switch (created->code) {
    case AL_OK:
    case AL_EXISTS:
    case AL_TIMEOUT:
      return true;
    case AL_UNREACHABLE:
    case AL_UNAVAILABLE:
    case AL_BLOCKED:
      return is_patient;
    default:
      return false;
  }
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static int64_t left_until(int64_t deadline) {
  if (deadline == AL_NEVER) return AL_NEVER;
  int64_t left = deadline - al_system_now();
  return left > 0 ? left : 0;
}

/* The first acquire has the whole timeout, also if that is 0. */
al_lock *cli_lock_acquire(al_session *session, const cli_options *options, cli_news *news,
                          cli_result *result) {
  int64_t deadline = options->timeout == AL_NEVER ? AL_NEVER : al_system_now() + options->timeout;
  bool creates = options->slots > 0 || options->permits > 0, is_last = false;
  for (;;) {
    al_lock *lock = try(session, options, news, left_until(deadline), result);
    if (lock || result->code != AL_NOT_FOUND || !creates || is_last) return lock;
    cli_result created = create(session, options, news, left_until(deadline));
    if (!may_exist_now(&created, options->patient)) {
      *result = created;
      return NULL;
    }
    is_last = left_until(deadline) == 0;
  }
}

cli_result cli_lock_release(al_session *session, al_lock *lock) {
  cli_result result;
  result.code = al_op_wait(session, al_lock_release(lock), result.message);
  al_lock_drop(lock);
  if (result.code != AL_UNREACHABLE) cli_lock_close(session);
  return result;
}

void cli_lock_close(al_session *session) { al_op_wait(session, al_session_close(session), NULL); }
