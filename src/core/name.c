/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/name.h"

#include <stdio.h>
#include <string.h>

/* The length of the UTF-8 character at `s`, 0 if there is none (RFC 3629: no overlong forms, no surrogates), and its
 * code point. */
static size_t utf8_next(const unsigned char *s, size_t left, uint32_t *point) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > left) return 0;
  *point = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (s[i] >> 6 != 2) return 0;
    *point = *point << 6 | (s[i] & 0x3Fu);
  }
  bool wrong = *point < least[length] || *point > 0x10FFFF || (*point >= 0xD800 && *point < 0xE000);
  return wrong ? 0 : length;
}

static bool is_control(uint32_t point) { return point < 0x20 || (point >= 0x7F && point < 0xA0); }

bool al_name_check(const char *name, size_t length, char why[AL_MESSAGE_SIZE]) {
  const unsigned char *s = (const unsigned char *)name;
  const char *wrong = NULL;
  if (length == 0) wrong = "is empty";
  if (length > AL_LOCK_NAME_MAX)
    wrong = "is too long: at most 230 bytes leave room for the suffixes of its queues";
  if (length >= 4 && memcmp(name, "amq.", 4) == 0)
    wrong = "starts with \"amq.\", which RabbitMQ keeps for itself";
  for (size_t i = 0, step; i < length && !wrong; i += step) {
    uint32_t point = 0;
    step = utf8_next(s + i, length - i, &point);
    if (step == 0)
      wrong = "is not UTF-8";
    else if (is_control(point))
      wrong = "holds a control character";
  }
  if (wrong) snprintf(why, AL_MESSAGE_SIZE, "the name %s", wrong);
  return !wrong;
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
