// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// To be preloaded (LD_PRELOAD): a process that stops itself, as by SIGSTOP, as soon as the file $STOP_BEFORE_READING
// exists, which it removes: after it has read the clock, before it polls a socket that was empty until then.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static _Thread_local bool reads_on;

ssize_t recv(int socket, void *bytes, size_t size, int flags) {
  static ssize_t (*real)(int, void *, size_t, int);
  if (!real) real = (ssize_t (*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
  const char *file = getenv("STOP_BEFORE_READING");
  if (!reads_on && file && unlink(file) == 0) kill(getpid(), SIGSTOP);
  ssize_t count = real(socket, bytes, size, flags);
  reads_on = count > 0;
  return count;
}
