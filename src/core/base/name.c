/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/name.h"

#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

bool al_name_check(const char *name, size_t length, char why[AL_MESSAGE_SIZE]) {
  const char *wrong = al_text_wrong(name, length);
  if (length == 0) wrong = "is empty";
  if (length > AL_LOCK_NAME_MAX)
    wrong = "is too long: at most 230 bytes leave room for the suffixes of its queues";
  if (length >= 4 && memcmp(name, "amq.", 4) == 0)
    wrong = "starts with \"amq.\", which RabbitMQ keeps for itself";
  if (wrong) snprintf(why, AL_MESSAGE_SIZE, "the name %s", wrong);
  return !wrong;
}

void al_lock_order(al_lock_kind kind, const char *name, char out[AL_NAME_SIZE]) {
  static void (*const queues[])(char[AL_NAME_SIZE], const char *) = {
      [AL_LOCK_SLOT] = al_name_bell,      [AL_LOCK_MUTEX] = al_name_mutex,
      [AL_LOCK_PERMIT] = al_name_permits, [AL_LOCK_READ] = al_name_door,
      [AL_LOCK_WRITE] = al_name_door,     [AL_LOCK_FAST_MUTEX] = al_name_fast_mutex};
  queues[kind](out, name);
}

_Static_assert(AL_LOCK_NAME_MAX == 230, "the message above names the limit");

void al_name_slot(char out[AL_NAME_SIZE], const char *name, int slot) {
  snprintf(out, AL_NAME_SIZE, "%s-%d-A", name, slot);
}

void al_name_holder(char out[AL_NAME_SIZE], const char *name, int slot) {
  snprintf(out, AL_NAME_SIZE, "%s-%d-B", name, slot);
}

void al_name_admin(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-admin", name);
}

void al_name_bell(char out[AL_NAME_SIZE], const char *name) { snprintf(out, AL_NAME_SIZE, "%s-bell", name); }

void al_name_scratch(char out[AL_NAME_SIZE], const char *name, const char *ticket) {
  snprintf(out, AL_NAME_SIZE, "%s-scratch-%s", name, ticket);
}

void al_name_permits(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s.semaphore", name);
}

void al_name_permit_count(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s.semaphore-count", name);
}

void al_name_marks(char out[AL_NAME_SIZE], const char *permits) {
  snprintf(out, AL_NAME_SIZE, "%s-count", permits);
}

void al_name_token_admin(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-tokenadmin", name);
}

void al_name_mutex(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-mutex", name);
}

void al_name_mutex_bell(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-mutexbell", name);
}

void al_name_fast_mutex(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-fastmutex", name);
}

void al_name_many(char out[AL_NAME_SIZE], const char *name) { snprintf(out, AL_NAME_SIZE, "%s-many", name); }

void al_name_many_bell(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-manybell", name);
}

void al_name_token_many(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-tokenmany", name);
}

void al_name_token_many_bell(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-tokenmanybell", name);
}

void al_name_bolt(char out[AL_NAME_SIZE], const char *queue) {
  snprintf(out, AL_NAME_SIZE, "%s-bolt", queue);
}

void al_name_reader(char out[AL_NAME_SIZE], const char *name, const char *ticket) {
  snprintf(out, AL_NAME_SIZE, "%s-reader-%s", name, ticket);
}

void al_name_readers(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-readers", name);
}

void al_name_door(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-writer", name);
}

void al_name_rw_bell(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-rwbell", name);
}

void al_name_fence(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-fence", name);
}

void al_name_mutex_fence(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-mutexfence", name);
}

void al_name_rw_fence(char out[AL_NAME_SIZE], const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s-rwfence", name);
}

void al_name_fence_maker(char out[AL_NAME_SIZE], const char *fence) {
  snprintf(out, AL_NAME_SIZE, "%s-maker", fence);
}

void al_name_fence_unfinished(char out[AL_NAME_SIZE], const char *fence) {
  snprintf(out, AL_NAME_SIZE, "%s-unfinished", fence);
}
