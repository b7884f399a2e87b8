/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration mutex ("Administration Mutex"): a claim, `N-admin` or `N-tokenadmin`, for the length of one change.
 * Whoever finds it taken looks again, with a backoff, until the operation's deadline. */
#ifndef AL_CORE_ADMIN_ADMIN_MUTEX_H
#define AL_CORE_ADMIN_ADMIN_MUTEX_H

#include "core/acquire/squatter.h"
#include "core/base/backoff.h"
#include "core/hold/exclusive.h"
#include "core/session/op.h"

typedef struct al_admin_mutex {
  al_op *op;
  const char *name; /* the semaphore's, for people */
  char queue[AL_NAME_SIZE];
  al_exclusive *own; /* NULL: waiting for another administrator, or let go */
  al_backoff wait;
  al_squatter squatter; /* once, when the queue was found taken */
  bool is_suspected;
  bool is_anothers; /* when last seen */
} al_admin_mutex;

/* Wants the mutex `queue` of semaphore `name` for `op`. The links must be open. Look with al_admin_mutex_poll_taken() in every
 * step of `op`, until it is. */
void al_admin_mutex_begin(al_admin_mutex *mutex, al_op *op, const char *name, const char *queue);

/* True once, when it is ours. False: not yet, or the operation has failed. */
bool al_admin_mutex_poll_taken(al_admin_mutex *mutex);

/* False: it was lost, and its channel with it; the operation has failed. */
bool al_admin_mutex_held(al_admin_mutex *mutex);

/* Ours: answers on its channel that are not its own business go to `on`, until it is let go of. */
void al_admin_mutex_listen(al_admin_mutex *mutex, void (*on)(al_op *op, const al_event *event));

/* Lets it go; done when al_admin_mutex_poll_released(). */
void al_admin_mutex_release(al_admin_mutex *mutex);
bool al_admin_mutex_poll_released(al_admin_mutex *mutex);

/* Says that it was another's for all of `time`, which was not enough. False, and nothing said: it was not seen so. */
bool al_admin_mutex_explain(const al_admin_mutex *mutex, int64_t time, char out[AL_MESSAGE_SIZE]);

/* Lets it go without looking back. */
void al_admin_mutex_drop(al_admin_mutex *mutex);

#endif
