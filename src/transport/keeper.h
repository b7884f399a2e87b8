/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The keeper: one small thread for each native session that holds locks or waits for one. While the session's owner
 * (the thread that calls this library) computes, the keeper serves the connection: heartbeats, answers, cancel notices,
 * and the pulse (the regular question to the broker that keeps held() certain).
 *
 * The turn is the mutex of a session (session/turn.h). The keeper takes the turn and pumps; it owns nothing else. It
 * blocks all signals, never opens a connection, and does not use Lua.
 *
 * While the owner is inside this library, or was within the last 100 ms, the keeper does not watch the connection: each
 * answer meant for the owner would wake it. While the session retains a lock the keeper always watches, as others may
 * ask for the lock. */
#ifndef AL_TRANSPORT_KEEPER_H
#define AL_TRANSPORT_KEEPER_H

#include <poll.h>
#include <pthread.h>

#include "core/session/loop.h"

typedef struct al_keeper {
  al_session *session;
  pthread_t thread;
  bool runs, has_failed;
  int poke; /* an eventfd: check `quit`, and the descriptors to poll */
  _Atomic bool quit;

  /* Set by the transport. */
  int64_t owner_seen; /* with the turn held: when the owner, not the keeper, last had it */
  /* Threads that want the turn and do not have it yet. A mutex is not fair: a keeper whose peer never pauses would take
   * it again and again. */
  _Atomic int claimants;
  /* Until when it sleeps, if nothing comes before. AL_NEVER: it does not watch the connection now, and will again after
   * 100 ms at most. It is poked if something is due before that; while the session retains a lock, also if it does not
   * watch. */
  _Atomic int64_t sleeps_until;
} al_keeper;

/* With the turn held: fills in what to poll for the session's links, and returns their number. */
int al_keeper_watch(al_session *session, struct pollfd links[AL_LINKS]);

void al_keeper_init(al_keeper *keeper, al_session *session);

/* Starts the keeper if it does not run yet. Returns false if the system has no thread or descriptor left. */
bool al_keeper_start(al_keeper *keeper);

/* Wakes the keeper: the descriptors to poll have changed. */
void al_keeper_poke(al_keeper *keeper);

/* Stops the keeper and waits for its end. Call it without the turn. Do not call it in a child process: the child has no
 * such thread, and the descriptor is the parent's. */
void al_keeper_stop(al_keeper *keeper);

#endif
