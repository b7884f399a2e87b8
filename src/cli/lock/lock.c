/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A semaphore is created only after an acquire has found that there is none: so a program that is started often does not
 * ask for the administration mutex each time. */
#include "cli/lock/lock.h"

#include <signal.h>
#include <stdio.h>

#include "cli/common/report.h"
#include "cli/lock/signals.h"

#define CREATE_LEAST (5 * AL_SECOND) /* for creating with -n, and when the caller's time is nearly over */

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

static al_op *begin_kind(al_session *session, const cli_options *options, const cli_wish *wish,
                         const al_acquire_options *how) {
  const char *name = wish->name;
  al_semaphore_options slots = {.strategy = options->random ? AL_RANDOM : AL_ASCENDING,
                                .fenced = options->fenced};
  al_token_semaphore_options permits = {.quorum = options->quorum, .fenced = options->fenced};
  al_lock_options plain = {.fenced = options->fenced};
  switch (wish->kind) {
    case AL_LOCK_SLOT:
      return acquire_semaphore(al_semaphore_new(session, name, &slots), how);
    case AL_LOCK_PERMIT:
      return acquire_token_semaphore(al_token_semaphore_new(session, name, &permits), how);
    case AL_LOCK_FAST_MUTEX:
      return acquire_fast_mutex(
          options->quorum ? al_quorum_mutex_new(session, name) : al_fast_mutex_new(session, name), how);
    case AL_LOCK_READ:
      return read_rwlock(al_rwlock_new(session, name, &plain), how);
    case AL_LOCK_WRITE:
      return write_rwlock(al_rwlock_new(session, name, &plain), how);
    default:
      return acquire_mutex(al_mutex_new(session, name, &plain), how);
  }
}

static al_op *begin(al_session *session, const cli_options *options, const cli_wish *wish, int64_t timeout) {
  al_acquire_options how;
  al_acquire_options_init(&how);
  how.timeout = timeout;
  how.fair = options->fair;
  how.priority = options->priority;
  how.patient = options->patient;
  how.count = options->count;
  how.revoke = options->takes_over;
  how.settle = options->settle;
  if (options->poll > 0) how.poll = options->poll;
  return begin_kind(session, options, wish, &how);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* Waits until the operation is done, and tells the progress. Signals that give up end the program meanwhile
 * (signals.h). */
static void await(al_session *session, const cli_options *options, al_op *op, cli_news *news) {
  char reason[AL_MESSAGE_SIZE];
  while (!al_op_done(op)) {
    cli_broker_wait(&options->broker, session, op);
    cli_news_connections(news, session);
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

/* Adds the locks of one wish to those that are held. */
static bool try(al_session *session, const cli_options *options, const cli_wish *wish, cli_news *news,
                int64_t timeout, cli_held *held, cli_result *result) {
  al_op *op = begin(session, options, wish, timeout);
  if (op) await(session, options, op, news);
  *result = result_of(op);
  for (al_lock *lock; op && (lock = al_op_lock(op));) held->locks[held->count++] = lock;
  al_op_drop(op);
  return result->code == AL_OK;
}

/* ---- creating --------------------------------------------------------------------------------------------------- */

static al_op *begin_creating(al_session *session, const cli_options *options, int64_t timeout) {
  if (options->wishes[0].kind == AL_LOCK_SLOT) {
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
  if (op) await(session, options, op, news);
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
  int64_t left = deadline - al_system_now() + AL_MILLISECOND - 1; /* in whole ones, as messages tell it */
  return left > 0 ? left - left % AL_MILLISECOND : 0;
}

/* The first acquire is tried also if the timeout is 0. */
static bool acquire_one(al_session *session, const cli_options *options, const cli_wish *wish, cli_news *news,
                        int64_t deadline, cli_held *held, cli_result *result) {
  bool creates = options->slots > 0 || options->permits > 0, is_last = false;
  for (;;) {
    bool has_it = try(session, options, wish, news, left_until(deadline), held, result);
    if (has_it || result->code != AL_NOT_FOUND || !creates || is_last) return has_it;
    cli_result created = create(session, options, news, left_until(deadline));
    if (!may_exist_now(&created, options->patient)) {
      *result = created;
      return false;
    }
    is_last = left_until(deadline) == 0;
  }
}

/* The first ones may be lost, or in doubt, while the last one is waited for. */
static bool are_held(al_session *session, const cli_held *held, cli_result *result) {
  const al_lock *which = cli_held_trouble(held, al_system_now(), &result->code);
  if (which) which = cli_held_verify(session, held, &result->code, result->message);
  return !which;
}

bool cli_lock_acquire(al_session *session, const cli_options *options, cli_news *news, cli_held *held,
                      cli_result *result) {
  int64_t deadline = options->timeout == AL_NEVER ? AL_NEVER : al_system_now() + options->timeout;
  bool has_all = true;
  *held = (cli_held){.broker = &options->broker};
  cli_news_asked(news);
  for (int i = 0; i < options->wishes_count && has_all; i++)
    has_all = acquire_one(session, options, &options->wishes[i], news, deadline, held, result);
  held->keep_until = al_system_now() + options->at_least;
  held->expires_at = options->at_most ? al_system_now() + options->at_most : AL_NEVER;
  if (has_all && are_held(session, held, result)) return true;
  cli_held_drop(held); /* the caller closes the session, and waits for that */
  return false;
}

cli_result cli_lock_release(al_session *session, cli_held *held) {
  cli_result result;
  result.code = cli_held_release(session, held, result.message);
  if (result.code != AL_UNREACHABLE) cli_lock_close(session);
  return result;
}

void cli_lock_close(al_session *session) { al_op_wait(session, al_session_close(session), NULL); }
