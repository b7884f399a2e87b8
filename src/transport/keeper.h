/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The keeper: one small thread for each native session that holds locks, or waits for one. While its owner computes, it
 * takes the turn and pumps: heartbeats, answers, cancel notices, the pulse that keeps held() certain. It owns nothing
 * else, blocks all signals, never opens a connection and knows nothing of Lua.
 *
 * While the owner is inside this library, or was a moment ago, the keeper stays out of the way: it would only be woken by
 * every answer that is not meant for it. */
#ifndef AL_TRANSPORT_KEEPER_H
#define AL_TRANSPORT_KEEPER_H

#include <poll.h>
#include <pthread.h>

#include "amqplocks.h"

/* What the keeper asks its session's transport. */
typedef struct al_keeper_port {
  /* With the turn held: what to poll for the session's links; returns how many there are. */
  int (*watch)(const al_session *, struct pollfd links[2]);
  int64_t (*owner_seen)(
      const al_session *); /* with the turn held: when the owner was last inside the library */
  /* Without the turn: whether the owner waits for it. A mutex is not fair, and a keeper whose peer never pauses would keep it. */
  bool (*is_turn_wanted)(const al_session *);
} al_keeper_port;

typedef struct al_keeper {
  const al_keeper_port *port;
  al_session *session;
  pthread_t thread;
  bool runs, has_failed;
  int poke; /* an eventfd: look again, the descriptors or the end of it have changed */
  _Atomic bool quit;
} al_keeper;

void al_keeper_init(al_keeper *keeper, const al_keeper_port *port, al_session *session);

/* Starts it if it does not run yet. False: the system has no thread or descriptor left. */
bool al_keeper_start(al_keeper *keeper);
void al_keeper_poke(al_keeper *keeper);

/* Ends it, and waits for that; not to be called with the turn held. Not to be called in a
 * child process: there is no such thread there, and the descriptor is the parent's. */
void al_keeper_stop(al_keeper *keeper);

#endif
