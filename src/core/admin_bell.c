/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin_bell.h"

#include "core/durable.h"
#include "core/name.h"
#include "core/session.h"

void al_admin_bell_find(al_admin_bell *bell, al_op *op, const char *name) {
  char queue[AL_NAME_SIZE];
  bell->op = op;
  al_name_bell(queue, name);
  al_sight_begin(&bell->sight, op, queue);
}

bool al_admin_bell_found(const al_admin_bell *bell) { return al_sight_caught(&bell->sight); }

bool al_admin_bell_exists(const al_admin_bell *bell) { return bell->sight.exists; }

int al_admin_bell_ready(const al_admin_bell *bell) { return bell->sight.ready; }

void al_admin_bell_declare(const al_admin_bell *bell, al_channel *channel, bool quorum) {
  al_durable_declare(channel, bell->sight.queue, quorum, false);
}

static void do_without(const al_admin_bell *bell, const char *why) {
  al_session_note(bell->op->session, true, "\"%s\" lacks tokens (%s): those who wait look by themselves",
                  bell->sight.queue, why);
}

void al_admin_bell_ring(al_admin_bell *bell, int tokens) {
  bool is_denied = tokens > 0 && bell->op->session->prober->denied;
  if (is_denied) do_without(bell, "this user may not publish them");
  al_mint_begin(&bell->tokens, bell->op, bell->sight.queue, AL_MESSAGE_TOKEN, is_denied ? 0 : tokens);
}

bool al_admin_bell_rung(al_admin_bell *bell) {
  if (!al_mint_over(&bell->tokens)) return false;
  if (bell->tokens.code != AL_OK) do_without(bell, bell->tokens.why);
  return true;
}

void al_admin_bell_cancel(al_admin_bell *bell) {
  al_sight_cancel(&bell->sight);
  al_mint_cancel(&bell->tokens);
}

void al_admin_bell_free(al_admin_bell *bell) { al_mint_free(&bell->tokens); }
