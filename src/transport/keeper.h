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

#include <pthread.h>

#include "amqplocks.h"

typedef struct al_keeper {
  pthread_t thread;
  bool runs, has_failed;
  int poke; /* an eventfd: look again, the descriptors or the end of it have changed */
  _Atomic bool quit;
} al_keeper;

void al_keeper_init(al_keeper *keeper);

/* Starts it if it does not run yet. False: the system has no thread or descriptor left. */
bool al_keeper_start(al_keeper *keeper, al_session *session);
void al_keeper_poke(al_keeper *keeper);

/* Ends it, and waits for that; not to be called with the turn held. Not to be called in a
 * child process: there is no such thread there, and the descriptor is the parent's. */
void al_keeper_stop(al_keeper *keeper);

#endif
