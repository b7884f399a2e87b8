/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The work of an administrator of permits: a list of tasks, each of which begins something, and goes on to the next when
 * that is over. Their order is what keeps the promise that there are never more permits than marks, whoever dies when:
 * marks are published before permits, and acknowledged with them, by one frame (of which in a cluster one queue may hear
 * and the other not, where the connection ends with it); and until all marks are there, there is no queue for permits, so
 * nobody waits at one that stays empty.
 *
 * Queues are declared and deleted on the mutex's own channel: who loses the mutex loses the means to go on. What is taken
 * from them is taken on the drain's, and goes back with it when anything goes wrong before it is acknowledged.
 *
 * Nothing is published twice. Where it is not known what came of it, the action fails, and repair counts what there is. */
#ifndef AL_CORE_TOKENS_TOKEN_WORK_H
#define AL_CORE_TOKENS_TOKEN_WORK_H

#include "core/admin/admin_mutex.h"
#include "core/queue/barrier.h"
#include "core/queue/publish.h"
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
  al_backoff wait; /* between looks at it */
  al_barrier barrier;
  al_drain_goal drain_goal;
  al_publish publishing;
  const char *asked; /* the queue that is being declared or deleted; NULL: that is answered */
  int64_t patience;  /* for the whole action, waiting for holders included */

  enum {
    AL_NOTHING_BEGUN,
    AL_RESIZE_FINISHES,
    AL_REPAIR_AND_RESIZE_DO,
    AL_REPAIR_DOES,
    AL_DESTROY_DOES,
    AL_ALL_DONE
  } begun;
  al_code verdict; /* what to end with once the mutex is let go */
  char words[AL_MESSAGE_SIZE];
};

/* Begins the work, with the mutex, the queues and the plan in hand. The last task ends the operation. */
void al_token_work_begin(al_token_work *work);

/* Ends it with the verdict and its words, before anything was begun. */
void al_token_work_decline(al_token_work *work);

/* For the mutex's channel: an answer. */
void al_token_work_event(al_op *op, const al_event *event);

#endif
