/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/backoff.h"

#include "core/base/random.h"

int64_t al_deadline_after(int64_t now, int64_t time) { return time < AL_NEVER - now ? now + time : AL_NEVER; }

int64_t al_earlier(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t al_backoff_next(al_backoff *wait, uint64_t *random) {
  int64_t delay = wait->next ? wait->next : wait->first;
  wait->next = delay < wait->most / 2 ? delay * 2 : wait->most;
  return delay / 2 + al_random_below(random, delay / 2 + 1);
}

int64_t al_backoff_recheck(int64_t poll, uint64_t *random) {
  return poll - al_random_below(random, poll / 8 + 1);
}
