/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program whose standard input, output and error are closed by another thread just before rabbitmq-c opens its
 * socket, and in which other code still writes to them: stdio NAME. It takes a slot, and exits with 0. */
#include "program.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static bool is_due = true; /* the next socket() finds them closed */

int socket(int domain, int type, int protocol) {
  for (int fd = 0; fd <= 2 && is_due && domain != AF_UNIX; fd++) close(fd);
  is_due = is_due && domain == AF_UNIX;
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
  CHECK(argc == 2);
  al_session *session = connect_with(0);
  al_semaphore *semaphore = al_semaphore_new(session, argv[1], NULL);
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
