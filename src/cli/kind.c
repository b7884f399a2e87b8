/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/kind.h"

#include <stdio.h>

const char *cli_kind_name(al_lock_kind kind) {
  static const char *const names[] = {
      [AL_LOCK_SLOT] = "slot", [AL_LOCK_MUTEX] = "mutex", [AL_LOCK_PERMIT] = "permit",
      [AL_LOCK_READ] = "read", [AL_LOCK_WRITE] = "write", [AL_LOCK_FAST_MUTEX] = "fast_mutex"};
  return names[kind];
}

const char *cli_lock_words(const al_lock *lock, char out[AL_NAME_SIZE + 64]) {
  static const char *const words[] = {[AL_LOCK_MUTEX] = "mutex",
                                      [AL_LOCK_PERMIT] = "a permit of",
                                      [AL_LOCK_READ] = "the read lock on",
                                      [AL_LOCK_WRITE] = "the write lock on",
                                      [AL_LOCK_FAST_MUTEX] = "fast mutex"};
  al_lock_kind kind = al_lock_kind_of(lock);
  if (kind == AL_LOCK_SLOT)
    snprintf(out, AL_NAME_SIZE + 64, "slot %d of \"%s\"", al_lock_slot(lock), al_lock_name(lock));
  else
    snprintf(out, AL_NAME_SIZE + 64, "%s \"%s\"", words[kind], al_lock_name(lock));
  return out;
}
