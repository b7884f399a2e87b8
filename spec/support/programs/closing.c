/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A session that its own thread ends while the program connects for it: closing NAME, of a mutex. The program holds the
 * mutex; its prober connection was lost, and another one is wanted when the session is closed. The next socket() for
 * that returns only after the thread has closed the connection that held the mutex. Exits with 0, and prints so, if no
 * socket is open then. */
#include "program.h"
#include <sys/socket.h>

#define TRIES 20

static bool has_created; /* a stream socket */
static int awaited = -1; /* socket() returns when this one is closed */

static bool is_socket(int fd) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

/* One that is open; -1: there is none. */
static int open_socket(int other) {
  for (int fd = 0; fd < 1000; fd++)
    if (fd != other && is_socket(fd)) return fd;
  return -1;
}

int socket(int domain, int type, int protocol) {
  int fd = REAL(int, socket, int, int, int)(domain, type, protocol);
  if ((type & 0xf) != SOCK_STREAM || domain == AF_UNIX) return fd;
  has_created = true;
  for (int i = 0; awaited >= 0 && i < 1000 && is_socket(awaited); i++) usleep(10000);
  return fd;
}

/* Returns whether the intended order happened: on a busy machine the thread may be faster than the program. */
static bool close_while_connecting(const char *name) {
  al_session *session = connect_with(0);
  succeed(session, al_session_open(session));
  int holder = open_socket(-1);
  al_mutex *mutex = al_mutex_new(session, name, NULL);
  al_lock *lock = succeed(session, al_mutex_acquire(mutex, NULL));
  int prober = open_socket(holder);
  CHECK(lock && holder >= 0 && prober >= 0);
  shutdown(prober, SHUT_RDWR);
  while (is_socket(prober)) {
    usleep(10000);
    al_native_touch(session);
  }
  al_op *op = al_mutex_acquire(mutex, NULL); /* asks as soon as the prober is connected */
  usleep(300000);
  al_native_touch(session); /* keeps its thread away for a moment */
  al_op *close = al_session_close(session);
  awaited = holder;
  has_created = false;
  succeed(session, close);
  awaited = -1;
  CHECK(al_op_code(op) == AL_CLOSED);
  CHECK(open_socket(-1) < 0);
  al_op_drop(op);
  al_lock_drop(lock);
  al_mutex_drop(mutex);
  al_session_drop(session);
  return has_created;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  for (int i = 0; i < TRIES; i++) {
    if (!close_while_connecting(argv[1])) continue;
    puts("nothing is open");
    return 0;
  }
  fputs("its thread was always faster\n", stderr);
  return 1;
}
