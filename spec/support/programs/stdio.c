/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program without standard input, output and error, in which other code still writes to these descriptors:
 *
 *     stdio before NAME       they are closed when it starts
 *     stdio meanwhile NAME    another thread closes them just before rabbitmq-c opens its socket
 *
 * It takes a slot of a semaphore. It exits with 0, or with the line number of the failed check. */
#include <amqplocks.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : _exit(__LINE__))

static bool is_due; /* the next socket() finds them closed */

static void close_standard(void) {
  for (int fd = 0; fd <= 2; fd++) close(fd);
}

/* The program's function takes precedence over that of libc, also in rabbitmq-c. */
int socket(int domain, int type, int protocol) {
  int (*real)(int, int, int);
  *(void **)&real = dlsym(RTLD_NEXT, "socket");
  if (is_due && domain != AF_UNIX) {
    is_due = false;
    close_standard();
  }
  return real(domain, type, protocol);
}

/* Checks that no descriptor with one of these numbers can be written to. */
static void write_everywhere(void) {
  for (int fd = 0; fd <= 2; fd++) {
    struct stat what;
    CHECK(write(fd, "news of the day\n", 16) < 0 && write(fd, "12345678", 8) < 0);
    CHECK(fstat(fd, &what) < 0 || S_ISDIR(what.st_mode));
    CHECK(fcntl(fd, F_GETFD) < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC));
  }
}

/* Waits for an operation and drops it; returns the lock, if the operation acquires one. */
static al_lock *carry_out(al_session *session, al_op *op) {
  CHECK(op);
  while (!al_op_done(op)) al_native_wait(session, op);
  CHECK(al_op_code(op) == AL_OK);
  al_lock *lock = al_op_lock(op);
  al_op_drop(op);
  return lock;
}

int main(int argc, char **argv) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings;
  al_settings_init(&settings);
  CHECK(argc == 3 && al_settings_url(&settings, getenv("AMQP_URL"), why));
  is_due = strcmp(argv[1], "meanwhile") == 0;
  if (!is_due) close_standard();
  al_session *session = al_native_new(&settings);
  CHECK(session && al_native_pollfd(session) > 2); /* before anything is connected */
  al_semaphore *semaphore = al_semaphore_new(session, argv[2], NULL);
  al_lock *lock = carry_out(session, al_semaphore_acquire(semaphore, NULL));
  CHECK(lock && !is_due);
  write_everywhere();
  carry_out(session, al_lock_verify(lock));
  carry_out(session, al_lock_release(lock));
  al_lock_drop(lock);
  al_semaphore_drop(semaphore);
  al_session_drop(session);
  write_everywhere();
  return 0;
}
