// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// To be preloaded (LD_PRELOAD): a process that stops itself, as by SIGSTOP, between its look at the clock and its next look
// at a socket, as soon as there is a file by the name in $STOP_BEFORE_READING, which it removes.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int poll(struct pollfd *all, nfds_t count, int timeout) {
  static int (*real)(struct pollfd *, nfds_t, int);
  const char *file = getenv("STOP_BEFORE_READING");
  if (!real) real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
  if (timeout == 0 && file && unlink(file) == 0) kill(getpid(), SIGSTOP);
  return real(all, count, timeout);
}
