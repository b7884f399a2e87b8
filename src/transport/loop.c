/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/loop.h"

#include <stdlib.h>

#include "core/session/loop.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "transport/descriptors.h"
#include "transport/fork.h"
#include "transport/system.h"

struct al_transport {
  al_fork fork;
  int64_t pumped_at;
};

static bool has_forked(const al_session *session) { return al_fork_happened(&session->transport->fork); }

static void tell_time(al_session *session) {
  al_session_set_time(session, al_system_now(), al_system_wall());
}

static void transport_free(struct al_transport *transport) {
  al_fork_free(&transport->fork);
  free(transport);
}

al_session *al_loop_new(const al_settings *settings) {
  struct al_transport *transport = calloc(1, sizeof *transport);
  if (!transport || !al_fork_init(&transport->fork)) {
    free(transport);
    return NULL;
  }
  al_session *session = al_system_session(settings);
  if (!session) {
    transport_free(transport);
    return NULL;
  }
  session->transport = transport;
  session->transport_free = transport_free;
  session->take_turn = tell_time;
  session->has_forked = has_forked;
  session->is_shared = true;       /* among the loop's coroutines */
  al_descriptors_spare_standard(); /* the loop opens the sockets, and output to one would lose locks here, too */
  tell_time(session);
  return session;
}

/* When the loop may connect this link. */
static int64_t due(const al_link *link) { return link->wanted ? link->due_at : AL_NEVER; }

static int64_t wake(al_session *session, const al_op *op) {
  if (!op) return al_session_wake(session);
  al_link *links[AL_LINKS];
  int64_t wake = al_op_wake(op);
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (due(links[i]) > session->now && due(links[i]) < wake) wake = due(links[i]);
  return wake;
}

int64_t al_loop_wake(al_session *session, const al_op *op) {
  if (al_session_forked(session)) return AL_NEVER;
  tell_time(session);
  int64_t until = wake(session, op);
  if (until == AL_NEVER) return AL_NEVER;
  return until > session->now ? until - session->now : 0;
}

int64_t al_loop_pump(al_session *session, al_op *op) {
  if (al_session_forked(session)) {
    if (op) al_op_fail(op, AL_FORKED, AL_FORKED_WORDS);
    return AL_NEVER;
  }
  tell_time(session);
  al_session_excuse(session, session->transport->pumped_at);
  session->transport->pumped_at = session->now;
  al_session_pump(session, session->now);
  return al_loop_wake(session, op);
}
