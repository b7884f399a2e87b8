/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program without standard input, output and error, in which other code still writes to these descriptors:
 *
 *     stdio before NAME       they are closed when it starts
 *     stdio meanwhile NAME    another thread closes them just before rabbitmq-c opens its socket
 *
 * It takes a slot of a semaphore, and exits with 0. */
#include "program.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static bool is_due; /* the next socket() finds them closed */

static void close_standard(void) {
  for (int fd = 0; fd <= 2; fd++) close(fd);
}

int socket(int domain, int type, int protocol) {
  if (is_due && domain != AF_UNIX) {
    is_due = false;
    close_standard();
  }
  return REAL(int, socket, int, int, int)(domain, type, protocol);
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

int main(int argc, char **argv) {
  CHECK(argc == 3);
  is_due = strcmp(argv[1], "meanwhile") == 0;
  if (!is_due) close_standard();
  al_session *session = connect_with(0);
  CHECK(al_native_pollfd(session) > 2); /* before anything is connected */
  al_semaphore *semaphore = al_semaphore_new(session, argv[2], NULL);
  al_lock *lock = succeed(session, al_semaphore_acquire(semaphore, NULL));
  CHECK(lock && !is_due);
  write_everywhere();
  succeed(session, al_lock_verify(lock));
  succeed(session, al_lock_release(lock));
  al_lock_drop(lock);
  al_semaphore_drop(semaphore);
  al_session_drop(session);
  write_everywhere();
  return 0;
}
