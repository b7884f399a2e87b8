/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/system.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/session/loop.h"
#include "transport/trace.h"

/* This clock also counts while the system sleeps: a lock may have been lost meanwhile. */
int64_t al_system_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * AL_SECOND + now.tv_nsec;
}

double al_system_wall(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t seed(void) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
  return (uint64_t)al_system_now() ^ (uint64_t)getpid() << 32;
}

static void name(al_settings *settings) {
  char host[64] = "";
  if (settings->name[0] != '\0') return;
  gethostname(host, sizeof host - 1);
  snprintf(settings->name, sizeof settings->name, "%.40s[%d]@%s", program_invocation_short_name,
           (int)getpid(), host);
  al_text_mend(settings->name); /* a file name may have any bytes, and may be cut within a character */
}

al_session *al_system_session(const al_settings *settings) {
  al_settings named = *settings;
  name(&named);
  al_session *session = al_session_new(&named, seed());
  explicit_bzero(&named, sizeof named);
  if (!session || al_trace_begin(session)) return session;
  al_session_drop(session);
  return NULL;
}
