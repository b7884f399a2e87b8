/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/admin_bell.h"

#include <string.h>

#include "core/base/name.h"
#include "core/queue/declare.h"
#include "core/session/session.h"

void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name) {
  char queue[AL_NAME_SIZE];
  bell->op = op;
  al_name_bell(queue, name);
  al_inspect_begin(&bell->inspect, op, queue);
}

bool al_admin_bell_poll_find(const al_admin_bell *bell) { return al_inspect_poll(&bell->inspect); }

bool al_admin_bell_exists(const al_admin_bell *bell) { return bell->inspect.exists; }

int al_admin_bell_ready(const al_admin_bell *bell) { return bell->inspect.ready; }

void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel) {
  al_declare_bell(channel, bell->inspect.queue);
}

/* ---- the type of the queue -------------------------------------------------------------------------------------- */

/* Only the queue type counts. Other differences, such as a length limit, are left to the administrator who set
 * them. */
static bool is_kind_refused(const al_event *event) {
  return event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_PRECONDITION_FAILED &&
         strstr(event->text, "'x-queue-type'");
}

static void check_event(void *owner, al_channel *channel, const al_event *event) {
  al_admin_bell *bell = owner;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  bell->check = NULL;
  bell->is_other_kind = is_kind_refused(event);
  if (event->kind == AL_EVENT_DOWN) return; /* the mutex was on the same link: it fails the operation */
  if (is_declared) al_channel_give(channel);
  al_op_answered(bell->op);
  bell->op->step(bell->op);
}

void al_admin_bell_check(al_admin_bell *bell) {
  al_op *op = bell->op;
  bell->check = al_channel_take(&op->session->holder, check_event, bell);
  if (!bell->check) {
    al_op_fail_channel(op, &op->session->holder, "no channel is left on the connection");
    return;
  }
  al_op_ask(op);
  al_admin_bell_declare(bell, bell->check);
}

bool al_admin_bell_poll_check(const al_admin_bell *bell) { return !bell->check && !bell->op->done; }

void al_admin_bell_note_deleted(al_admin_bell *bell) {
  bell->inspect.exists = bell->is_other_kind = false;
  bell->inspect.ready = bell->inspect.consumers = 0;
}

/* ---- the tokens ------------------------------------------------------------------------------------------------- */

static void do_without(const al_admin_bell *bell, const char *why) {
  char name[AL_NAME_SIZE];
  al_queue_parse(bell->inspect.queue, name, NULL);
  al_session_note(bell->op->session, true, AL_OK, name,
                  "\"%s\" lacks tokens (%s): waiters find free slots only by their own rechecks",
                  bell->inspect.queue, why);
}

void al_admin_bell_ring(al_admin_bell *bell, int tokens) {
  bool is_denied = tokens > 0 && bell->op->session->asks_by->denied;
  if (is_denied) do_without(bell, "this user may not publish them");
  al_fill_begin(&bell->tokens, bell->op, bell->inspect.queue, AL_MESSAGE_TOKEN, is_denied ? 0 : tokens);
}

bool al_admin_bell_poll_ring(al_admin_bell *bell) {
  if (!al_fill_poll(&bell->tokens)) return false;
  if (bell->tokens.code != AL_OK) do_without(bell, bell->tokens.why);
  return true;
}

void al_admin_bell_cancel(al_admin_bell *bell) {
  al_inspect_cancel(&bell->inspect);
  if (bell->check) al_channel_close(bell->check);
  bell->check = NULL;
  al_fill_cancel(&bell->tokens);
}

void al_admin_bell_free(al_admin_bell *bell) { al_fill_free(&bell->tokens); }
