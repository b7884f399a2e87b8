/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A server that forks children which do not exec, at bad moments:
 *
 *     prefork while_connecting NAME   another thread forks between socket() and the end of connecting
 *     prefork while_closing NAME      another thread forks just before a socket is closed
 *     prefork full NAME               no descriptor is left when it forks
 *     prefork many NAME               so many sessions that their descriptors need more than one block
 *     prefork guard NAME              a first child keeps the connections, a second one does not
 *
 * Each takes the one slot of a semaphore, prints the number of living children and their ids, and waits until it is
 * ended. The children wait until they are ended, too. */
#include "program.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define SESSIONS 200 /* of at least two descriptors each */

static const char *mode;
static bool is_opening_due, is_closing_due; /* the next socket() forks, or the next close() of one */
static int children;

static bool is_mode(const char *one) { return strcmp(mode, one) == 0; }

static void fork_child(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0)
    for (;;) pause();
  printf("child %d\n", (int)child);
  children++;
}

#ifndef STATIC
int socket(int domain, int type, int protocol) {
  int fd = REAL(int, socket, int, int, int)(domain, type, protocol);
  if (is_opening_due && domain != AF_UNIX) {
    is_opening_due = false;
    fork_child();
  }
  return fd;
}

int close(int fd) {
  struct stat what;
  if (is_closing_due && fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode)) {
    is_closing_due = false;
    fork_child();
  }
  return REAL(int, close, int)(fd);
}
#endif

static al_lock *take(al_session *session, const char *name) {
  al_semaphore *semaphore = al_semaphore_new(session, name, NULL);
  CHECK(semaphore);
  return succeed(session, al_semaphore_acquire(semaphore, NULL));
}

/* A dropped session ends without connection.close. */
static void take_and_drop(const char *name) {
  al_session *session = connect_with(60);
  take(session, name);
  is_closing_due = is_mode("while_closing");
  al_session_drop(session);
}

static void fill_descriptors(void) {
  struct rlimit few = {.rlim_cur = 100, .rlim_max = 100};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  while (open("/dev/null", O_RDONLY) >= 0) continue;
}

static void open_many(void) {
  for (int i = 0; i < SESSIONS; i++) {
    al_session *session = connect_with(60);
    succeed(session, al_session_open(session));
    CHECK(al_native_pollfd(session) >= 0);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 3 && setenv("AMQP_URL", getenv("URL"), 1) == 0);
  mode = argv[1];
  signal(SIGCHLD, SIG_DFL);
  setvbuf(stdout, NULL, _IONBF, 0);
  is_opening_due = is_mode("while_connecting");
  if (is_mode("while_closing")) take_and_drop(argv[2]);
  if (is_mode("many")) open_many();
  al_session *session = connect_with(60);
  take(session, argv[2]);
  if (is_mode("full")) fill_descriptors();
  if (is_mode("guard")) {
    al_native_keep_in_child(session);
    fork_child();
  }
  if (children == 0 || is_mode("guard")) fork_child();
  puts("holds");
  for (;;) pause();
}
