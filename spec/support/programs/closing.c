/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A session that its own thread ends while the program connects for it: closing NAME, of a mutex. The program holds the
 * mutex; its prober connection was lost, and another one is wanted when the session is closed. The next socket() for
 * that returns only after the thread has closed the connection that held the mutex. Exits with 0, and prints so, if no
 * socket is open then. */
#include <amqplocks.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: " #what "\n", __LINE__), _exit(1)))

#define TRIES 20

static int last = -1;       /* the stream socket created last */
static int is_awaited = -1; /* socket() returns when this one is closed */

static bool is_socket(int fd) {
  struct stat what;
  return fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode);
}

/* The program's functions take precedence over those of libc, also in rabbitmq-c. */
int socket(int domain, int type, int protocol) {
  int (*real)(int, int, int);
  *(void **)&real = dlsym(RTLD_NEXT, "socket");
  int fd = real(domain, type, protocol);
  if ((type & 0xf) != SOCK_STREAM || domain == AF_UNIX) return fd;
  last = fd;
  for (int i = 0; is_awaited >= 0 && i < 1000 && is_socket(is_awaited); i++) usleep(10000);
  return fd;
}

static void await(al_session *session, al_op *op) {
  CHECK(op);
  while (!al_op_done(op)) al_native_wait(session, op);
  if (al_op_code(op) != AL_OK) fprintf(stderr, "%s\n", al_op_message(op));
  CHECK(al_op_code(op) == AL_OK);
}

static al_session *connect_new(void) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings;
  al_settings_init(&settings);
  CHECK(al_settings_url(&settings, getenv("AMQP_URL"), why));
  al_session *session = al_native_new(&settings);
  CHECK(session);
  return session;
}

/* Returns whether the intended order happened: on a busy machine the thread may be faster than the program. */
static bool close_while_connecting(const char *name) {
  al_session *session = connect_new();
  al_op *open = al_session_open(session);
  await(session, open);
  al_op_drop(open);
  int holder = last;
  al_mutex *mutex = al_mutex_new(session, name, NULL);
  al_op *op = al_mutex_acquire(mutex, NULL);
  await(session, op);
  al_lock *lock = al_op_lock(op);
  al_op_drop(op);
  int prober = last;
  CHECK(lock && prober != holder);
  shutdown(prober, SHUT_RDWR);
  while (is_socket(prober)) {
    usleep(10000);
    al_native_touch(session);
  }
  op = al_mutex_acquire(mutex, NULL); /* asks as soon as the prober is connected */
  usleep(300000);
  al_native_touch(session); /* keeps its thread away for a moment */
  al_op *close = al_session_close(session);
  is_awaited = holder;
  last = -1;
  await(session, close);
  is_awaited = -1;
  bool has_connected = last >= 0;
  CHECK(al_op_code(op) == AL_CLOSED);
  CHECK(!has_connected || !is_socket(last));
  al_op_drop(op);
  al_op_drop(close);
  al_lock_drop(lock);
  al_mutex_drop(mutex);
  al_session_drop(session);
  return has_connected;
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
