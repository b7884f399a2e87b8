/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/held.h"

#include <stdio.h>

const al_lock *cli_held_first(const cli_held *held) { return held->locks[0]; }

int64_t cli_held_certain_until(const cli_held *held) {
  int64_t least = AL_NEVER;
  for (int i = 0; i < held->count; i++) {
    int64_t until = al_lock_certain_until(held->locks[i]);
    if (until < least) least = until;
  }
  return least;
}

const al_lock *cli_held_trouble(const cli_held *held, int64_t now, al_code *code) {
  const al_lock *doubtful = NULL;
  *code = AL_OK;
  for (int i = 0; i < held->count; i++) {
    al_code its = al_lock_held(held->locks[i], now);
    if (its == AL_OK || (doubtful && its == AL_SUSPECT)) continue;
    doubtful = held->locks[i];
    *code = its;
    if (its != AL_SUSPECT) break;
  }
  return doubtful;
}

const al_lock *cli_held_revoked(const cli_held *held) {
  for (int i = 0; i < held->count; i++)
    if (al_lock_revoked(held->locks[i])) return held->locks[i];
  return NULL;
}

const al_lock *cli_held_verify(al_session *session, const cli_held *held, al_code *code,
                               char message[AL_MESSAGE_SIZE]) {
  for (int i = 0; i < held->count; i++) {
    *code = cli_broker_await(held->broker, session, al_lock_verify(held->locks[i]), message);
    if (*code != AL_OK) return held->locks[i];
  }
  return NULL;
}

al_code cli_held_release(al_session *session, cli_held *held, char message[AL_MESSAGE_SIZE]) {
  al_code first = AL_OK;
  message[0] = '\0';
  while (held->count > 0) {
    char words[AL_MESSAGE_SIZE];
    al_lock *lock = held->locks[--held->count];
    al_code code = cli_broker_await(held->broker, session, al_lock_release(lock), words);
    al_lock_drop(lock);
    if (first != AL_OK || code == AL_OK) continue;
    first = code;
    snprintf(message, AL_MESSAGE_SIZE, "%s", words);
  }
  return first;
}

void cli_held_drop(cli_held *held) {
  while (held->count > 0) al_lock_drop(held->locks[--held->count]);
}
