/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/admin_bell.h"

#include "core/base/name.h"
#include "core/queue/declare.h"
#include "core/session/session.h"

void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name) {
  char queue[AL_NAME_SIZE];
  bell->op = op;
  al_name(queue, AL_SUFFIX_BELL, name);
  al_inspect_begin(&bell->inspect, op, &op->session->holder, queue);
}

bool al_admin_bell_poll_find(const al_admin_bell *bell) { return al_inspect_poll(&bell->inspect); }

bool al_admin_bell_exists(const al_admin_bell *bell) { return bell->inspect.exists; }

int al_admin_bell_ready(const al_admin_bell *bell) { return bell->inspect.ready; }

void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel) {
  al_declare_bell(channel, bell->inspect.queue);
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
  al_fill_cancel(&bell->tokens);
}

void al_admin_bell_free(al_admin_bell *bell) { al_fill_free(&bell->tokens); }
