/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/token_work.h"

#include "core/base/backoff.h"
#include "core/queue/declare.h"
#include "core/session/session.h"

/* ---- the agenda, and its end ------------------------------------------------------------------------------------- */

static void proceed(al_token_work *work) {
  if (!work->op.done) (*work->agenda++)(work);
}

/* Waits for the drain with the mutex released. The next administrator need not wait for it: acknowledged messages
 * do not lie ready. */
static void staying(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_drain_poll_end(&work->drain_goal.drain)) return;
  if (work->verdict != AL_OK) {
    al_op_fail(op, work->verdict, "%s", work->words);
    return;
  }
  op->count = (size_t)work->plan.target;
  al_op_finish(op);
}

/* From here on the operation only waits for a fixed time. The caller's deadline does not apply to that. */
static void leaving(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_admin_mutex_poll_released(&work->mutex)) return;
  op->deadline = AL_NEVER;
  al_op_next(op, staying);
}

static void leave(al_token_work *work) {
  bool is_certain = al_drain_is_out(&work->drain_goal.drain);
  if (work->begun != AL_NOTHING_BEGUN && is_certain) work->begun = AL_ALL_DONE;
  al_admin_mutex_release(&work->mutex);
  al_op_next(&work->op, leaving);
}

static void settling(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (al_admin_mutex_held(&work->mutex) && al_drain_poll_settled(&work->drain_goal.drain)) proceed(work);
}

static void give_back(al_token_work *work) {
  al_drain_return(&work->drain_goal.drain);
  al_op_enter(&work->op, settling);
}

static bool renews(const al_token_work *work) {
  return work->plan.way == AL_TOKEN_MENDS && work->options.quorum;
}

/* In a cluster, if the connection ends now, one of the two queues may take its messages back. */
static void acknowledge(al_token_work *work) {
  work->begun = work->plan.way == AL_TOKEN_TAKES ? AL_REPAIR_AND_RESIZE_DO : AL_RESIZE_FINISHES;
  if (renews(work)) work->begun = AL_REPAIR_DOES;
  al_drain_acknowledge(&work->drain_goal.drain);
  al_op_enter(&work->op, settling);
}

static void outstaying(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (al_admin_mutex_held(&work->mutex) && al_drain_poll_end(&work->drain_goal.drain)) proceed(work);
}

/* No permit that was acknowledged can come back any more. */
static void outstay(al_token_work *work) { al_op_next(&work->op, outstaying); }

/* Nothing was changed. */
static void give_up(al_token_work *work, al_code code) {
  static al_token_task *const giving_up[] = {give_back, leave};
  work->verdict = code;
  work->agenda = giving_up;
  proceed(work);
}

/* ---- tasks: on the mutex's channel ------------------------------------------------------------------------------ */

void al_token_work_event(al_op *op, const al_event *event) {
  al_token_work *work = (al_token_work *)op;
  bool is_answer = event->kind == AL_EVENT_METHOD && (event->method == AMQP_QUEUE_DECLARE_OK_METHOD ||
                                                      event->method == AMQP_QUEUE_DELETE_OK_METHOD);
  if (is_answer) work->asked = NULL;
  if (event->kind != AL_EVENT_CLOSED || !work->asked || event->method == 0) return;
  if (work->begun == AL_REPAIR_AND_RESIZE_DO)
    work->begun = AL_RESIZE_FINISHES; /* the queue was refused, so it is known not to exist */
  al_op_fail(op, al_event_code(event, AL_SQUATTED, AL_UNAVAILABLE), "queue \"%s\": %s", work->asked,
             event->text);
  /* This operation watches the claim, so the session calls its step next. */
}

static void asking(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_admin_mutex_held(&work->mutex) || work->asked) return;
  al_op_answered(op);
  proceed(work);
}

static void ask(al_token_work *work, const char *queue) {
  work->asked = queue;
  al_op_enter(&work->op, asking);
  al_op_ask(&work->op);
}

/* AL_TOKEN_MAKES: there is no queue of permits yet, so there is no semaphore. AL_TOKEN_ADOPTS: permits without marks are
 * taken over again. */
static void declare_marks(al_token_work *work) {
  work->begun = AL_RESIZE_FINISHES;
  ask(work, work->queues.marks.queue);
  al_declare_marks(work->mutex.own->channel, work->asked, work->options.quorum);
}

static void declare_permits(al_token_work *work) {
  work->begun = AL_REPAIR_AND_RESIZE_DO;
  ask(work, work->queues.permits.queue);
  al_declare_permits(work->mutex.own->channel, work->asked, work->options.quorum);
}

static void delete_queue(al_token_work *work, const al_inspect *inspect) {
  if (!inspect->exists) {
    proceed(work);
    return;
  }
  ask(work, inspect->queue);
  al_exclusive_delete_other(work->mutex.own, inspect->queue);
}

static void delete_permits(al_token_work *work) {
  work->begun = AL_DESTROY_DOES;
  al_drain_doom(&work->drain_goal.drain);
  delete_queue(work, &work->queues.permits);
}

static void delete_marks(al_token_work *work) { delete_queue(work, &work->queues.marks); }

/* The queue of the drain is deleted. */
static void end_collecting(al_token_work *work) {
  al_drain_drop(&work->drain_goal.drain);
  proceed(work);
}

/* ---- tasks: publishing ------------------------------------------------------------------------------------------ */

/* The prober publishes. Its connection does not end with the mutex. So before each publish it must be certain that
 * the mutex is still held. */
static void filling(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  const al_fill *fill = &work->fill;
  if (!al_admin_mutex_held(&work->mutex) || !al_fill_is_idle(&work->fill)) return;
  if (!al_claim_ascertain_for(op) || !al_fill_poll(&work->fill)) return;
  bool only_asks = fill->probes.message == AL_MESSAGE_PROBE; /* whether the queue exists does not matter */
  bool fine =
      fill->code == AL_OK || (only_asks && (fill->code == AL_NOT_FOUND || fill->code == AL_UNAVAILABLE));
  if (fine)
    proceed(work);
  else
    al_op_fail(op, fill->code, "publishing to queue \"%s\": %s", fill->queue, fill->why);
}

static void publish(al_token_work *work, const char *queue, al_message message, int count) {
  al_fill_begin(&work->fill, &work->op, queue, message, count);
  al_op_next(&work->op, filling);
}

/* Publishes a probe before anything is changed. So an alarm, or a missing permission, fails the action in time. */
static void try_to_publish(al_token_work *work) {
  if (work->plan.permits == 0)
    proceed(work);
  else
    publish(work, work->mutex.queue, AL_MESSAGE_PROBE, 1);
}

static void passing_barrier(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (al_admin_mutex_held(&work->mutex) && al_barrier_poll(&work->barrier)) proceed(work);
}

/* The prober may publish through another node of the cluster. The barrier makes that node know the queue just
 * declared. */
static void pass_barrier(al_token_work *work) {
  if (work->plan.permits == 0) {
    proceed(work);
    return;
  }
  al_op_enter(&work->op, passing_barrier);
  al_barrier_begin(&work->barrier, &work->op, AL_PROBE_PUBLISH, work->name);
}

static void publish_marks(al_token_work *work) {
  if (work->plan.way != AL_TOKEN_MAKES) work->begun = AL_REPAIR_AND_RESIZE_DO;
  publish(work, work->queues.marks.queue, AL_MESSAGE_MARK, work->plan.marks);
}

static void publish_permits(al_token_work *work) {
  if (work->plan.permits > 0) work->begun = AL_REPAIR_DOES;
  work->fill.probes.ids = renews(work) ? &work->drain_goal.drain.ids : NULL;
  publish(work, work->queues.permits.queue, AL_MESSAGE_PERMIT, work->plan.permits);
}

/* ---- tasks: draining -------------------------------------------------------------------------------------------- */

static void collecting(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  if (!al_admin_mutex_held(&work->mutex)) return;
  al_drain_goal_state state = al_drain_goal_poll(&work->drain_goal);
  if (state == AL_DRAIN_GOAL_TOO_LITTLE) {
    al_drain_goal_explain(&work->drain_goal, work->name, work->words);
    give_up(work, work->options.wait > 0 ? AL_TIMEOUT : AL_BUSY);
  } else if (state == AL_DRAIN_GOAL_ENOUGH) {
    if (work->plan.way == AL_TOKEN_MENDS)
      work->plan.permits = work->plan.count - (renews(work) ? 0 : work->drain_goal.drain.count);
    proceed(work);
  }
}

static void collect_permits(al_token_work *work, al_drain_goal_kind goal, int number) {
  int64_t wait = work->options.wait;
  work->allowed = al_deadline_after(work->allowed, wait);
  work->op.deadline = al_deadline_after(work->op.deadline, wait);
  al_op_enter(&work->op, collecting);
  al_drain_goal_begin(&work->drain_goal, &work->op, work->queues.permits.queue, goal, number, wait);
}

static void collect_some(al_token_work *work) {
  collect_permits(work, AL_DRAIN_GOAL_NUMBER, work->plan.takes);
}

static void collect_all(al_token_work *work) {
  al_drain_goal_kind goal = work->plan.action == AL_DESTROY ? AL_DRAIN_GOAL_ALL : AL_DRAIN_GOAL_NUMBER;
  if (goal == AL_DRAIN_GOAL_NUMBER && work->plan.takes == 0)
    proceed(work);
  else
    collect_permits(work, goal, work->plan.takes);
}

static void collect_whole(al_token_work *work) {
  collect_permits(work, AL_DRAIN_GOAL_WHOLE, work->plan.count);
}

static void collect_foreign(al_token_work *work) { collect_permits(work, AL_DRAIN_GOAL_CERTAIN, 0); }

static void collecting_marks(al_op *op) {
  al_token_work *work = (al_token_work *)op;
  const al_drain *drain = &work->drain_goal.drain;
  if (!al_admin_mutex_held(&work->mutex)) return;
  al_drain_goal_state state = al_drain_goal_poll(&work->drain_goal);
  if (state == AL_DRAIN_GOAL_TOO_LITTLE)
    al_op_fail(op, AL_CONFLICT, "queue \"%s\" has lost marks: of %d to be removed only %d are there",
               drain->queue, drain->room, drain->count);
  else if (state == AL_DRAIN_GOAL_ENOUGH)
    proceed(work);
}

/* Only administrators take marks, and this one holds the mutex: so the marks lie ready. */
static void collect_marks(al_token_work *work) {
  al_op_enter(&work->op, collecting_marks);
  al_drain_goal_go_on(&work->drain_goal, work->queues.marks.queue, work->op.session->settings.timeout);
}

/* ---- deciding --------------------------------------------------------------------------------------------------- */

static al_token_task *const leaves[] = {leave};
static al_token_task *const makes[] = {try_to_publish, delete_marks,    declare_marks,
                                       pass_barrier,   publish_marks,   declare_permits,
                                       pass_barrier,   publish_permits, leave};
static al_token_task *const adds[] = {try_to_publish, pass_barrier, publish_marks, publish_permits, leave};
static al_token_task *const takes[] = {collect_some, collect_marks, acknowledge, leave};
static al_token_task *const empties[] = {collect_all, delete_permits, end_collecting, delete_marks, leave};
static al_token_task *const deletes[] = {delete_permits, delete_marks, leave};
static al_token_task *const mends[] = {collect_whole,   try_to_publish, pass_barrier,
                                       publish_permits, give_back,      leave};
/* A permit may have been published again, and count from its first base. Each gets another base, and keeps its id. */
static al_token_task *const mends_numbers[] = {collect_whole, try_to_publish,  pass_barrier, acknowledge,
                                               outstay,       publish_permits, leave};
static al_token_task *const adopts[] = {try_to_publish, collect_foreign, acknowledge,
                                        delete_marks,   declare_marks,   pass_barrier,
                                        publish_marks,  publish_permits, leave};
static al_token_task *const clears[] = {collect_foreign, delete_permits, end_collecting, delete_marks, leave};

static al_token_task *const *agenda(const al_token_work *work) {
  switch (work->plan.way) {
    case AL_TOKEN_MAKES:
      return makes;
    case AL_TOKEN_ADDS:
      return adds;
    case AL_TOKEN_TAKES:
      return takes;
    case AL_TOKEN_EMPTIES:
      return empties;
    case AL_TOKEN_DELETES:
      return deletes;
    case AL_TOKEN_MENDS:
      return renews(work) ? mends_numbers : mends;
    case AL_TOKEN_ADOPTS:
      return work->plan.target > 0 ? adopts : clears;
    default:
      return leaves;
  }
}

void al_token_work_begin(al_token_work *work) {
  work->agenda = agenda(work);
  proceed(work);
}

void al_token_work_decline(al_token_work *work) {
  work->agenda = leaves;
  proceed(work);
}
