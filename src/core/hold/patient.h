/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A patient acquire (al_acquire_options.patient): an operation that acquires by another operation, the attempt. If the
 * attempt fails because the broker cannot be reached, cannot serve the queue, or reads no publishers, another attempt
 * follows, within the caller's timeout.
 *
 * Acquires of quorum permits, and of several at once, are a little patient without that option. RabbitMQ (3.10.8,
 * 4.3.6) ends the connection of a client, by an error of its own (541), if the client begins to consume from a quorum
 * queue that another client is just declaring or deleting. Nothing was acquired then, and a few more attempts follow.
 *
 *   attempting ─┬─ the attempt has a lock ──> done
 *     ^         ├─ it failed for good ──> done: its code and message
 *     │         └─ it failed for now ──> pausing ─┬─ the timeout has passed ──> done: AL_TIMEOUT
 *     └───────────────────────────────────────────┘
 */
#ifndef AL_CORE_HOLD_PATIENT_H
#define AL_CORE_HOLD_PATIENT_H

#include "core/base/backoff.h"
#include "core/session/op.h"

typedef struct al_patient al_patient;

typedef struct al_patient_kind {
  al_op *(*attempt)(al_patient *); /* begins one attempt with `options`. NULL: no memory */
  void (*free)(al_patient *);
} al_patient_kind;

struct al_patient {
  al_op op;
  const al_patient_kind *kind;
  char name[AL_NAME_SIZE];
  al_acquire_options options; /* of an attempt */
  bool is_wanted;             /* by the caller */
  int broken;                 /* number of attempts that ended with 541 */
  int64_t until;              /* the caller's deadline */
  al_backoff pause;
  al_code last; /* the code of the last attempt that failed for now; AL_OK: there is none */
  char last_words[AL_MESSAGE_SIZE];
};

/* True if the caller asks for such an acquire. */
bool al_patient_is_wanted(const al_acquire_options *options);

/* Makes an operation of `size` bytes, which begin with an al_patient. The caller then sets the members of its kind, and
 * calls al_patient_start(). `options`: NULL, or the caller's. Returns NULL if there is no memory. */
al_patient *al_patient_new(al_session *session, const al_patient_kind *kind, size_t size, const char *name,
                           const al_acquire_options *options);
al_op *al_patient_start(al_patient *self);

#endif
