/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The work of an administrator on a token semaphore. A permit is a message that a client consumes to hold the
 * lock; a mark is a message that counts one permit (token_queues.h). The work is an agenda: a list of tasks. Each
 * task begins something, and the next task begins when that is done.
 *
 * There are never more permits than marks, at whatever moment the administrator dies. The order of the tasks
 * ensures this. Marks are published before permits. Permits and marks to remove are acknowledged together, by one
 * frame. (In a cluster, if the connection ends with that frame, one queue may receive the acknowledgement and the
 * other one not.) A new queue of permits is declared when all marks are there, so no client waits at a queue that
 * stays empty.
 *
 * Queues are declared and deleted on the channel of the administration mutex. So an administrator that loses the
 * mutex cannot change anything any more. Messages are taken on the channel of a drain (drain.h), and return to
 * their queues with that channel if anything fails before they are acknowledged.
 *
 * Nothing is published twice. If the result of a publish is not known, the action fails, and a repair counts what
 * exists. */
#ifndef AL_CORE_TOKENS_TOKEN_WORK_H
#define AL_CORE_TOKENS_TOKEN_WORK_H

#include "core/admin/admin_mutex.h"
#include "core/queue/barrier.h"
#include "core/queue/fill.h"
#include "core/tokens/drain_goal.h"
#include "core/tokens/token_plan.h"

typedef struct al_token_work al_token_work;
typedef void al_token_task(al_token_work *);

struct al_token_work {
  al_op op; /* first */
  char name[AL_NAME_SIZE];
  al_token_admin_options options;
  al_token_plan plan;
  al_token_task *const *agenda;

  al_admin_mutex mutex;
  al_token_queues queues;
  al_barrier barrier;
  al_drain_goal drain_goal;
  al_fill fill;
  const char *asked; /* the queue of the declare or delete under way; NULL: none */
  int64_t allowed;   /* the time for the whole action, waiting for holders included */

  enum {
    AL_NOTHING_BEGUN,
    AL_RESIZE_FINISHES,
    AL_REPAIR_AND_RESIZE_DO,
    AL_REPAIR_DOES,
    AL_DESTROY_DOES,
    AL_ALL_DONE
  } begun;         /* which action would finish the work, if it is cut short now */
  al_code verdict; /* the code of the operation once the mutex is released */
  char words[AL_MESSAGE_SIZE];
};

/* Begins the work. The mutex is held, and the queues and the plan are known. The last task ends the operation. */
void al_token_work_begin(al_token_work *work);

/* Releases the mutex and ends the operation with `verdict` and `words`, without any work. */
void al_token_work_decline(al_token_work *work);

/* Takes the answers on the channel of the mutex (al_admin_mutex_listen). */
void al_token_work_event(al_op *op, const al_event *event);

#endif
