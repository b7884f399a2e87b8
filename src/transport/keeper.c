/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/keeper.h"

#include <signal.h>
#include <unistd.h>

#include "core/session/loop.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "transport/descriptors.h"
#include "transport/socket.h"
#include "transport/system.h"

#define STAY_OUT (100 * AL_MILLISECOND) /* after the owner last called the library */
#define GIVE_WAY AL_MILLISECOND         /* while the session retains a lock, if the owner wants the turn */

void al_keeper_init(al_keeper *keeper, al_session *session) {
  *keeper = (al_keeper){.session = session, .poke = -1};
}

void al_keeper_poke(al_keeper *keeper) {
  uint64_t one = 1;
  if (keeper->poke >= 0 && write(keeper->poke, &one, sizeof one) < 0)
    return; /* a full counter wakes it too */
}

static int watch(const al_link *link, struct pollfd *one) {
  if (!link->port) return 0;
  bool unsent = al_socket_has_unsent(link->port);
  bool reads = al_socket_reads(link->port);
  *one = (struct pollfd){.fd = al_socket_fd(link->port),
                         .events = (short)((reads ? POLLIN : 0) | (unsent ? POLLOUT : 0))};
  return one->fd >= 0;
}

int al_keeper_watch(al_session *session, struct pollfd watched[AL_LINKS]) {
  al_link *links[AL_LINKS];
  int watched_count = 0;
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) watched_count += watch(links[i], &watched[watched_count]);
  return watched_count;
}

/* Takes one turn. Fills in what to poll, and returns until when. */
static int64_t keep(al_keeper *keeper, struct pollfd links[AL_LINKS], int *count) {
  al_session *session = keeper->session;
  *count = 0;
  keeper->sleeps_until = AL_NEVER;
  if (keeper->claimants > 0) return al_system_now() + (session->retained ? GIVE_WAY : STAY_OUT);
  AL_TURN(session);
  int64_t now = al_system_now(), from = keeper->owner_seen + STAY_OUT;
  if (now < from && !session->retained) return from;
  al_session_pump(session, now);
  *count = al_keeper_watch(session, links);
  int64_t until = al_session_wake(session);
  keeper->sleeps_until = until;
  return until;
}

static void *keeper_main(void *argument) {
  al_keeper *keeper = argument;
  while (!keeper->quit) {
    struct pollfd all[1 + AL_LINKS];
    int count;
    int64_t until = keep(keeper, all + 1, &count), left = until - al_system_now();
    struct timespec timeout = {.tv_sec = left > 0 ? left / AL_SECOND : 0,
                               .tv_nsec = left > 0 ? left % AL_SECOND : 0};
    all[0] = (struct pollfd){.fd = keeper->poke, .events = POLLIN};
    ppoll(all, (nfds_t)count + 1, until == AL_NEVER ? NULL : &timeout, NULL);
    uint64_t pokes;
    if (all[0].revents && read(keeper->poke, &pokes, sizeof pokes) < 0) continue;
  }
  return NULL;
}

bool al_keeper_start(al_keeper *keeper) {
  sigset_t all, before;
  if (keeper->runs) return true;
  if (keeper->poke < 0) keeper->poke = al_descriptors_eventfd(0);
  if (keeper->poke < 0) return false;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the owner; the thread inherits this mask */
  keeper->runs = pthread_create(&keeper->thread, NULL, keeper_main, keeper) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return keeper->runs;
}

void al_keeper_stop(al_keeper *keeper) {
  if (keeper->runs) {
    keeper->quit = true;
    al_keeper_poke(keeper);
    pthread_join(keeper->thread, NULL);
  }
  keeper->runs = false;
  al_descriptors_close(keeper->poke);
  keeper->poke = -1;
}
