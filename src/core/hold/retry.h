/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A patient acquire (al_acquire_options.patient): an operation that acquires by another operation, the attempt. If the
 * attempt fails because the broker cannot be reached, cannot serve the queue, or reads no publishers, another attempt
 * follows, within the caller's timeout.
 *
 * Acquires of quorum permits and mutexes, and of several at once, are a little patient without that option. RabbitMQ
 * (3.10.8, 4.3.6) ends the connection of a client, by an error of its own (541), if the client begins to consume from a
 * quorum queue that another client is just declaring or deleting. Nothing was acquired then, and a few more attempts
 * follow.
 *
 * An acquire of a mutex that settles is such an operation, too, whether it is patient or not: another operation, that of
 * seal.h, follows the attempt that has the mutex.
 *
 *   attempting ─┬─ the attempt has a lock ──> done; or, if it has to settle: handing_on ──> settling ──> done
 *     ^         ├─ it failed for good ──> done: its code and message
 *     │         └─ it failed for now ──> pausing ─┬─ the timeout has passed ──> done: AL_TIMEOUT
 *     └───────────────────────────────────────────┘
 */
#ifndef AL_CORE_HOLD_RETRY_H
#define AL_CORE_HOLD_RETRY_H

#include "core/base/backoff.h"
#include "core/session/op.h"

typedef struct al_retry al_retry;

/* How attempts are made. */
typedef struct al_attempts {
  al_op *(*begin)(const al_retry *); /* begins one attempt, with the `options`. NULL: no memory */
  void (*leave)(void *from);         /* gives a reference to `from` back */
  void *from;                        /* the lock */
  const void *kind;                  /* for `begin`, as is `size` */
  size_t size;
  bool is_mutex; /* it may be sealed (seal.h) */
} al_attempts;

struct al_retry {
  al_op op;
  al_attempts attempts;
  char name[AL_NAME_SIZE];
  al_acquire_options options;
  int broken;    /* number of attempts that ended with 541 */
  int64_t until; /* the caller's deadline */
  al_backoff pause;
  al_code last; /* the code of the last attempt that failed for now; AL_OK: there is none */
  char last_words[AL_MESSAGE_SIZE];
};

/* True if an acquire with these options, or NULL, is such an operation. */
bool al_retry_is_wanted(const al_acquire_options *options);

/* Begins. `options`: NULL, or the caller's. One reference to `attempts.from` is the operation's from now on. Returns NULL
 * if there is no memory. */
al_op *al_retry_begin(al_session *session, const char *name, const al_acquire_options *options,
                      al_attempts attempts);

#endif
