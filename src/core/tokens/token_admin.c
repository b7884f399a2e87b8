/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration of a token semaphore, which has two queues (token_queues.h). One holds the permits, which are
 * the messages that clients consume. The other holds the marks: one message for each permit that should exist.
 *
 *   wanting_links ─> taking_mutex ─> reading ─> one task after the other ─> leaving ─> staying ─> done
 *                                     ^   │
 *                                     └───┴── an administrator that died has marks
 *
 * The plan (token_plan.h) is made once, from the state of the queues; token_work.h carries it out. */
#include <stdio.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/name.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/tokens/token_work.h"

void al_token_admin_options_init(al_token_admin_options *options) {
  *options = (al_token_admin_options){.timeout = 30 * AL_SECOND};
}

/* ---- ending ----------------------------------------------------------------------------------------------------- */

/* Only administrators consume marks, and only one administrator works at a time. So a consumer that is seen here
 * belongs to an administrator that died, and the queue does not know that yet: it will take the marks back. Until
 * then the marks cannot be counted. A destroy need not count them. */
static bool has_all_marks(const al_token_work *work) {
  return work->queues.marks.consumers == 0 || work->plan.action == AL_DESTROY;
}

static void explain(al_op *op, char out[AL_MESSAGE_SIZE]) {
  const al_token_work *work = (const al_token_work *)op;
  if (al_admin_mutex_explain(&work->mutex, work->options.timeout, out)) return;
  if (!has_all_marks(work))
    snprintf(out, AL_MESSAGE_SIZE,
             "another client consumes from queue \"%s\", so its marks cannot be counted",
             work->queues.marks.queue);
  else
    snprintf(out, AL_MESSAGE_SIZE, "%s of \"%s\" took longer than %g s", al_action_verb(work->plan.action),
             work->name, (double)work->allowed / (double)AL_SECOND);
}

static void name_what_finishes(const al_token_work *work, char *out, size_t size) {
  int target = work->plan.target;
  switch (work->begun) {
    case AL_NOTHING_BEGUN:
      break;
    case AL_RESIZE_FINISHES:
      snprintf(out, size, "; resize(%d) finishes what was begun", target);
      break;
    case AL_REPAIR_AND_RESIZE_DO:
      snprintf(out, size, "; repair() and then resize(%d) finish what was begun", target);
      break;
    case AL_REPAIR_DOES:
      snprintf(out, size, "; repair() finishes what was begun");
      break;
    case AL_DESTROY_DOES:
      snprintf(out, size, "; destroy() finishes what was begun");
      break;
    case AL_ALL_DONE:
      snprintf(out, size, "; all else was done");
      break;
  }
}

static void token_admin_stop(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  size_t used = strlen(op->message);
  name_what_finishes(work, op->message + used, sizeof op->message - used);
  al_token_queues_cancel(&work->queues);
  al_barrier_cancel(&work->barrier);
  al_fill_cancel(&work->fill);
  al_drain_drop(&work->drain_goal.drain);
  al_admin_mutex_drop(&work->mutex);
}

static void token_admin_free(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  al_fill_free(&work->fill);
  al_ids_free(&work->drain_goal.drain.ids);
}

/* ---- deciding --------------------------------------------------------------------------------------------------- */

/* Notes in the log that permits are missing: an administrator died in the middle of its work, or permits were lost
 * otherwise. A client that holds a permit by basic.get is not seen as a consumer. */
static void note_what_is_missing(const al_token_work *work) {
  const al_inspect *permits = &work->queues.permits;
  bool mends_nothing = work->plan.action != AL_REPAIR && work->plan.action != AL_DESTROY;
  if (mends_nothing && permits->exists && permits->consumers == 0 && permits->ready < work->plan.count)
    al_session_note(
        work->op.session, true, AL_OK, work->name,
        "\"%s\" lacks %d of %d permits, and no consumer is seen that holds them: repair() makes them anew",
        work->name, work->plan.count - permits->ready, work->plan.count);
}

static void reading(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_admin_mutex_held(&work->mutex) || !al_token_queues_poll(&work->queues)) return;
  if (!has_all_marks(work)) {
    al_token_queues_again(&work->queues);
    return;
  }
  work->verdict = al_token_plan_make(&work->plan, &work->queues, work->name, work->words);
  if (work->verdict != AL_OK) {
    al_token_work_decline(work);
    return;
  }
  note_what_is_missing(work);
  al_token_work_begin(work);
}

static void taking_mutex(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_admin_mutex_poll_taken(&work->mutex)) return;
  al_admin_mutex_listen(&work->mutex, al_token_work_event);
  al_op_enter(op, reading);
  al_token_queues_begin(&work->queues, op, work->name);
}

static void wanting_links(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_action_is_possible(work->plan.action, work->plan.amount, op)) return;
  char queue[AL_NAME_SIZE];
  bool publishes = work->plan.action != AL_REMOVE && work->plan.action != AL_DESTROY;
  if (!al_op_needs(op, &op->session->holder)) return;
  if (publishes && !al_op_needs(op, op->session->prober)) return;
  al_op_enter(op, taking_mutex);
  al_name(queue, AL_SUFFIX_TOKEN_ADMIN, work->name);
  al_admin_mutex_begin(&work->mutex, op, work->name, queue);
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static al_op *token_admin_begin(al_session *session, al_action action, const char *name, int amount,
                                const al_token_admin_options *options) {
  AL_TURN(session);
  al_token_work *work = (al_token_work *)al_op_new(session, sizeof *work, name);
  if (!work) return NULL;
  al_token_admin_options_init(&work->options);
  if (options) work->options = *options;
  snprintf(work->name, sizeof work->name, "%s", name);
  work->plan =
      (al_token_plan){.action = action, .amount = amount, .waits = work->options.wait > 0, .target = -1};
  work->allowed = work->options.timeout;
  work->op.stop = token_admin_stop;
  work->op.free = token_admin_free;
  work->op.timeout_text = explain;
  return al_op_start(&work->op, wanting_links, al_deadline_after(session->now, work->options.timeout));
}

al_op *al_token_admin_create(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_CREATE, name, permits, options);
}

al_op *al_token_admin_add(al_session *session, const char *name, int permits,
                          const al_token_admin_options *options) {
  return token_admin_begin(session, AL_ADD, name, permits, options);
}

al_op *al_token_admin_remove(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_REMOVE, name, permits, options);
}

al_op *al_token_admin_resize(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options) {
  return token_admin_begin(session, AL_RESIZE, name, permits, options);
}

al_op *al_token_admin_destroy(al_session *session, const char *name, const al_token_admin_options *options) {
  return token_admin_begin(session, AL_DESTROY, name, 0, options);
}

al_op *al_token_admin_repair(al_session *session, const char *name, const al_token_admin_options *options) {
  return token_admin_begin(session, AL_REPAIR, name, 0, options);
}
