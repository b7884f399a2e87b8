/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration mutex (docs/specification.md, 8.1): mutual exclusion of the administrators of one semaphore. It is
 * a claim on the exclusive queue `N-admin` or `N-tokenadmin`, held for the length of one change. An administrator that
 * finds the mutex taken retries with exponential backoff until the deadline of its operation. */
#ifndef AL_CORE_ADMIN_ADMIN_MUTEX_H
#define AL_CORE_ADMIN_ADMIN_MUTEX_H

#include "core/acquire/squatter.h"
#include "core/base/backoff.h"
#include "core/hold/holder_queue.h"
#include "core/session/op.h"

typedef struct al_admin_mutex {
  al_op *op;
  const char *name; /* the semaphore's, for messages */
  char queue[AL_NAME_SIZE];
  al_exclusive *own; /* NULL: waiting for another administrator, or released */
  al_backoff wait;
  al_squatter squatter; /* asks whether a queue that is not exclusive stands under the mutex's name */
  bool is_anothers;     /* at the last try another administrator held it */
} al_admin_mutex;

/* Begins to claim the mutex `queue` of semaphore `name`. Poll with al_admin_mutex_poll_taken(). */
void al_admin_mutex_begin(al_admin_mutex *mutex, al_op *op, const char *name, const char *queue);

/* True as soon as this administrator holds the mutex. */
bool al_admin_mutex_poll_taken(al_admin_mutex *mutex);

/* False: the mutex and its channel were lost, and the operation has failed. */
bool al_admin_mutex_held(al_admin_mutex *mutex);

/* While the mutex is held: passes answers on its channel that do not concern the claim itself to `on`, until
 * release. */
void al_admin_mutex_listen(al_admin_mutex *mutex, void (*on)(al_op *op, const al_event *event));

/* Begins the release. Poll with al_admin_mutex_poll_released(). */
void al_admin_mutex_release(al_admin_mutex *mutex);
bool al_admin_mutex_poll_released(al_admin_mutex *mutex);

/* Writes the text of a timeout after `time`: another administrator held the mutex. False, and nothing written: at
 * the last try no other administrator was seen to hold it. */
bool al_admin_mutex_explain(const al_admin_mutex *mutex, int64_t time, char out[AL_MESSAGE_SIZE]);

/* Gives up the claim, or releases the mutex, without waiting for the answer. */
void al_admin_mutex_drop(al_admin_mutex *mutex);

#endif
