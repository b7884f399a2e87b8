/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/base/trace.h"
#include "core/session/session.h"
#include "transport/descriptors.h"

#define LINE_SIZE 513 /* with a newline and a NUL */

typedef struct trace_file {
  al_trace trace;
  al_session *session;
  int fd;
} trace_file;

/* Beyond the limit of a file's size a line is dropped, and the SIGXFSZ for it: it would end the program. */
static void append(int fd, const char *line, size_t length) {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  bool is_too_large = write(fd, line, length) < 0 && errno == EFBIG;
  if (is_too_large && !sigismember(&before, SIGXFSZ)) sigtimedwait(&signals, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* In a child the number may be another file's. A full disk, or a pipe that nobody reads, loses the line. */
__attribute__((format(printf, 2, 3))) static void say(al_trace *trace, const char *format, ...) {
  const trace_file *self = (const trace_file *)trace;
  char line[LINE_SIZE];
  struct timespec now;
  struct tm utc;
  if (self->fd < 0 || al_session_forked(self->session)) return;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  size_t length = strftime(line, sizeof line, "%FT%T", &utc);
  length += (size_t)snprintf(line + length, sizeof line - length, ".%06ldZ %s/%d ", now.tv_nsec / 1000,
                             self->session->settings.name, self->fd);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + length, sizeof line - 1 - length, format, arguments);
  va_end(arguments);
  al_text_mend(line);
  length = strlen(line);
  line[length] = '\n';
  append(self->fd, line, length + 1);
}

static void replace(al_session *session, const al_trace *old, al_trace *new) {
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (links[i]->trace == old) links[i]->trace = new;
}

static void end(al_trace *trace) {
  trace_file *self = (trace_file *)trace;
  replace(self->session, trace, NULL);
  if (self->fd >= 0) close(self->fd);
  free(self);
}

/* A pipe that is also open for reading never waits, and raises no SIGPIPE. */
static int open_file(const char *path) {
  al_descriptors_spare_standard();
  return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

bool al_trace_begin(al_session *session) {
  const char *path = session->settings.trace;
  if (!*path) path = secure_getenv("AMQPLOCKS_TRACE");
  if (!path || !*path) return true;
  trace_file *self = calloc(1, sizeof *self);
  if (!self) return false;
  *self = (trace_file){.trace = {.say = say, .end = end}, .session = session, .fd = open_file(path)};
  if (self->fd < 0)
    snprintf(self->trace.flaw, sizeof self->trace.flaw, "the trace file \"%.300s\" cannot be opened: %s",
             path, strerror(errno));
  replace(session, NULL, &self->trace);
  return true;
}
