/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/kind.h"

#include <stdio.h>
#include <string.h>

#include "core/base/name.h"

static const struct {
  const char *name, *words;
  al_suffix order; /* of the queue whose name al_lock_order() gives */
} kinds[] = {[AL_LOCK_SLOT] = {"slot", "slot", AL_SUFFIX_BELL},
             [AL_LOCK_MUTEX] = {"mutex", "mutex", AL_SUFFIX_MUTEX},
             [AL_LOCK_PERMIT] = {"permit", "a permit of", AL_SUFFIX_PERMITS},
             [AL_LOCK_READ] = {"read", "the read lock on", AL_SUFFIX_DOOR},
             [AL_LOCK_WRITE] = {"write", "the write lock on", AL_SUFFIX_DOOR},
             [AL_LOCK_FAST_MUTEX] = {"fast_mutex", "fast mutex", AL_SUFFIX_FAST_MUTEX}};

const char *al_kind_name(int kind) {
  bool is_one = kind >= 0 && kind < (int)(sizeof kinds / sizeof *kinds);
  return is_one ? kinds[kind].name : NULL;
}

int al_kind_named(const char *name) {
  int kind = (int)(sizeof kinds / sizeof *kinds) - 1;
  while (kind >= 0 && strcmp(kinds[kind].name, name) != 0) kind--;
  return kind;
}

const char *al_kind_words(char out[AL_LOCK_WORDS], al_lock_kind kind, int slot, const char *name) {
  if (kind == AL_LOCK_SLOT)
    snprintf(out, AL_LOCK_WORDS, "slot %d of \"%s\"", slot, name);
  else
    snprintf(out, AL_LOCK_WORDS, "%s \"%s\"", kinds[kind].words, name);
  return out;
}

void al_lock_order(al_lock_kind kind, const char *name, char out[AL_NAME_SIZE]) {
  al_name(out, kinds[kind].order, name);
}
