/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/ending.h"

#include <signal.h>

#include "amqplocks.h"

#define PAUSE_LEAST (2 * AL_MILLISECOND)
#define PAUSE_MOST (50 * AL_MILLISECOND)

int64_t cli_ending_kill_at(int64_t now, int64_t grace, int64_t latest) {
  return latest < now + grace ? latest : now + grace;
}

void cli_ending_take_over(cli_ending *ending, int64_t now, int64_t kill_at) {
  *ending = (cli_ending){.kill_at = kill_at, .pause = PAUSE_LEAST, .look_at = now};
}

void cli_ending_begin(cli_ending *ending, const cli_family *family, int64_t now, int64_t kill_at) {
  cli_ending_take_over(ending, now, kill_at);
  if (now >= kill_at) return;
  cli_family_signal(family, SIGTERM);
}

/* KILL is sent at every look: a process may have forked while the list was read. */
bool cli_ending_step(cli_ending *ending, const cli_family *family, int64_t now) {
  bool kills = now >= ending->kill_at;
  if (kills && !ending->has_killed) ending->look_at = now;
  if (now < ending->look_at) return false;
  ending->has_killed = kills;
  size_t left = cli_family_signal(family, kills ? SIGKILL : 0);
  ending->look_at = now + ending->pause;
  if (!kills && ending->look_at > ending->kill_at) ending->look_at = ending->kill_at;
  ending->pause = ending->pause < PAUSE_MOST / 2 ? 2 * ending->pause : PAUSE_MOST;
  return left == 0;
}
