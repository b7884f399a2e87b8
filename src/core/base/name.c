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

_Static_assert(AL_LOCK_NAME_MAX == 230, "the message above names the limit");

/* ---- names of queues -------------------------------------------------------------------------------------------- */

static const struct {
  const char *text;
  al_queue_part part;
} suffixes[AL_SUFFIX_COUNT] = {[AL_SUFFIX_BELL] = {"-bell", AL_QUEUE_BELL},
                               [AL_SUFFIX_ADMIN] = {"-admin", AL_QUEUE_ADMIN},
                               [AL_SUFFIX_MUTEX] = {"-mutex", AL_QUEUE_MUTEX},
                               [AL_SUFFIX_MUTEX_BELL] = {"-mutexbell", AL_QUEUE_MUTEX_BELL},
                               [AL_SUFFIX_FAST_MUTEX] = {"-fastmutex", AL_QUEUE_FAST_MUTEX},
                               [AL_SUFFIX_DOOR] = {"-writer", AL_QUEUE_WRITER},
                               [AL_SUFFIX_READERS] = {"-readers", AL_QUEUE_OTHER},
                               [AL_SUFFIX_RW_BELL] = {"-rwbell", AL_QUEUE_RW_BELL},
                               [AL_SUFFIX_PERMITS] = {".semaphore", AL_QUEUE_PERMITS},
                               [AL_SUFFIX_TOKEN_ADMIN] = {"-tokenadmin", AL_QUEUE_PERMITS_ADMIN},
                               [AL_SUFFIX_MANY] = {"-many", AL_QUEUE_MANY},
                               [AL_SUFFIX_MANY_BELL] = {"-manybell", AL_QUEUE_MANY_BELL},
                               [AL_SUFFIX_TOKEN_MANY] = {"-tokenmany", AL_QUEUE_MANY},
                               [AL_SUFFIX_TOKEN_MANY_BELL] = {"-tokenmanybell", AL_QUEUE_MANY_BELL},
                               [AL_SUFFIX_FENCE] = {"-fence", AL_QUEUE_FENCE},
                               [AL_SUFFIX_MUTEX_FENCE] = {"-mutexfence", AL_QUEUE_MUTEX_FENCE},
                               [AL_SUFFIX_RW_FENCE] = {"-rwfence", AL_QUEUE_RW_FENCE},
                               [AL_SUFFIX_BOLT] = {"-bolt", AL_QUEUE_BOLT},
                               [AL_SUFFIX_SEAL] = {"-seal", AL_QUEUE_SEAL},
                               [AL_SUFFIX_MARKS] = {"-count", AL_QUEUE_PERMITS_COUNT},
                               [AL_SUFFIX_FENCE_MAKER] = {"-maker", AL_QUEUE_FENCE_MAKER},
                               [AL_SUFFIX_FENCE_UNFINISHED] = {"-unfinished", AL_QUEUE_FENCE_MAKER}};

void al_name(char out[AL_NAME_SIZE], al_suffix suffix, const char *name) {
  snprintf(out, AL_NAME_SIZE, "%s%s", name, suffixes[suffix].text);
}

void al_name_slot(char out[AL_NAME_SIZE], const char *name, int slot) {
  snprintf(out, AL_NAME_SIZE, "%s-%d-A", name, slot);
}

void al_name_holder(char out[AL_NAME_SIZE], const char *name, int slot) {
  snprintf(out, AL_NAME_SIZE, "%s-%d-B", name, slot);
}

void al_name_reader(char out[AL_NAME_SIZE], const char *name, const char *ticket) {
  snprintf(out, AL_NAME_SIZE, "%s-reader-%s", name, ticket);
}

void al_name_scratch(char out[AL_NAME_SIZE], const char *name, const char *ticket) {
  snprintf(out, AL_NAME_SIZE, "%s-scratch-%s", name, ticket);
}

/* ---- what the name of a queue says ------------------------------------------------------------------------------ */

/* A name is read from its end. No suffix is the end of another one (name.h), so at most one of them fits. If the first
 * `*length` bytes of `queue` end with `suffix`, takes it away from `*length`. */
static bool take(const char *queue, size_t *length, const char *suffix) {
  size_t size = strlen(suffix);
  if (size > *length || memcmp(queue + *length - size, suffix, size) != 0) return false;
  *length -= size;
  return true;
}

/* Takes "-3" away from `*length`, and returns 3. Returns 0 if there is no number of a slot, as the library writes it. */
static int take_slot(const char *queue, size_t *length) {
  size_t at = *length;
  int slot = 0, unit = 1;
  for (; at > 0 && queue[at - 1] >= '0' && queue[at - 1] <= '9'; at--, unit *= 10) {
    if (*length - at == 5) return 0; /* AL_SLOTS_MAX has five digits */
    slot += unit * (queue[at - 1] - '0');
  }
  if (at == *length || queue[at] == '0' || at == 0 || queue[at - 1] != '-') return 0;
  *length = at - 1;
  return slot <= AL_SLOTS_MAX ? slot : 0;
}

static al_queue_part parse_slot(const char *queue, size_t *length, int *slot) {
  size_t at = *length;
  al_queue_part part = take(queue, &at, "-A")   ? AL_QUEUE_SLOT
                       : take(queue, &at, "-B") ? AL_QUEUE_SLOT_HELD
                                                : AL_QUEUE_OTHER;
  if (part == AL_QUEUE_OTHER || (*slot = take_slot(queue, &at)) == 0) return AL_QUEUE_OTHER;
  *length = at;
  return part;
}

static al_queue_part parse_ticket(const char *queue, size_t *length) {
  const size_t size = AL_TICKET_SIZE - 1;
  size_t at = *length - size;
  if (*length < size || strspn(queue + at, "0123456789abcdef") < size) return AL_QUEUE_OTHER;
  al_queue_part part = take(queue, &at, "-reader-")    ? AL_QUEUE_READER
                       : take(queue, &at, "-scratch-") ? AL_QUEUE_SCRATCH
                                                       : AL_QUEUE_OTHER;
  if (part != AL_QUEUE_OTHER) *length = at;
  return part;
}

/* Of the suffixes from `from` to before `to`. */
static al_queue_part parse_suffix(const char *queue, size_t *length, int from, int to) {
  while (from < to && !take(queue, length, suffixes[from].text)) from++;
  return from < to ? suffixes[from].part : AL_QUEUE_OTHER;
}

static al_queue_part parse_of_lock(const char *queue, size_t *length, int *slot) {
  al_queue_part part = parse_slot(queue, length, slot);
  if (part == AL_QUEUE_OTHER) part = parse_ticket(queue, length);
  return part != AL_QUEUE_OTHER ? part : parse_suffix(queue, length, 0, AL_SUFFIX_BESIDE);
}

static bool stands_beside(al_queue_part part, al_queue_part first) {
  switch (first) {
    case AL_QUEUE_SLOT_HELD:
    case AL_QUEUE_ADMIN:
    case AL_QUEUE_WRITER:
    case AL_QUEUE_PERMITS_ADMIN:
    case AL_QUEUE_MANY:
      return part == AL_QUEUE_BOLT;
    case AL_QUEUE_MUTEX:
      return part == AL_QUEUE_BOLT || part == AL_QUEUE_SEAL;
    case AL_QUEUE_FAST_MUTEX:
      return part == AL_QUEUE_SEAL;
    case AL_QUEUE_FENCE:
    case AL_QUEUE_MUTEX_FENCE:
    case AL_QUEUE_RW_FENCE:
      return part == AL_QUEUE_FENCE_MAKER;
    case AL_QUEUE_PERMITS:
      return part == AL_QUEUE_PERMITS_COUNT;
    default:
      return false;
  }
}

static al_queue_part parse(const char *queue, size_t *length, int *slot) {
  al_queue_part part = parse_suffix(queue, length, AL_SUFFIX_BESIDE, AL_SUFFIX_COUNT);
  al_queue_part first = parse_of_lock(queue, length, slot);
  if (part == AL_QUEUE_OTHER) return first;
  return stands_beside(part, first) ? part : AL_QUEUE_OTHER;
}

al_queue_part al_queue_parse(const char *queue, char name[AL_NAME_SIZE], int *slot) {
  size_t length = strlen(queue);
  char why[AL_MESSAGE_SIZE];
  int number = 0;
  al_queue_part part = parse(queue, &length, &number);
  bool is_ours = part != AL_QUEUE_OTHER && al_name_check(queue, length, why);
  if (!is_ours) length = 0;
  memcpy(name, queue, length);
  name[length] = '\0';
  if (slot) *slot = is_ours ? number : 0;
  return is_ours ? part : AL_QUEUE_OTHER;
}
