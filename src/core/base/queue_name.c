/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the name of a queue says: the opposite of name.c. A name is read from its end. No suffix is the end of another
 * one (name.h), so at most one of them fits. */
#include <string.h>

#include "core/base/name.h"

#define TICKET_LENGTH (AL_TICKET_SIZE - 1)

typedef struct suffix {
  const char *text;
  al_queue_part part;
} suffix;

/* Behind the number of a slot. */
static const suffix of_slots[] = {
    {"-A", AL_QUEUE_SLOT}, {"-B", AL_QUEUE_SLOT_HELD}, {"-B-bolt", AL_QUEUE_BOLT}};

/* Before a ticket. */
static const suffix of_tickets[] = {{"-reader-", AL_QUEUE_READER}, {"-scratch-", AL_QUEUE_SCRATCH}};

/* Behind the name of a lock. */
static const suffix of_locks[] = {{"-bell", AL_QUEUE_BELL},
                                  {"-admin", AL_QUEUE_ADMIN},
                                  {"-admin-bolt", AL_QUEUE_BOLT},
                                  {"-mutex", AL_QUEUE_MUTEX},
                                  {"-mutex-bolt", AL_QUEUE_BOLT},
                                  {"-mutexbell", AL_QUEUE_MUTEX_BELL},
                                  {"-fastmutex", AL_QUEUE_FAST_MUTEX},
                                  {"-writer", AL_QUEUE_WRITER},
                                  {"-writer-bolt", AL_QUEUE_BOLT},
                                  {"-rwbell", AL_QUEUE_RW_BELL},
                                  {".semaphore", AL_QUEUE_PERMITS},
                                  {".semaphore-count", AL_QUEUE_PERMITS_COUNT},
                                  {"-tokenadmin", AL_QUEUE_PERMITS_ADMIN},
                                  {"-tokenadmin-bolt", AL_QUEUE_BOLT},
                                  {"-many", AL_QUEUE_MANY},
                                  {"-many-bolt", AL_QUEUE_BOLT},
                                  {"-manybell", AL_QUEUE_MANY_BELL},
                                  {"-tokenmany", AL_QUEUE_MANY},
                                  {"-tokenmany-bolt", AL_QUEUE_BOLT},
                                  {"-tokenmanybell", AL_QUEUE_MANY_BELL},
                                  {"-fence", AL_QUEUE_FENCE},
                                  {"-mutexfence", AL_QUEUE_MUTEX_FENCE},
                                  {"-rwfence", AL_QUEUE_RW_FENCE},
                                  {"-fence-maker", AL_QUEUE_FENCE_MAKER},
                                  {"-mutexfence-maker", AL_QUEUE_FENCE_MAKER},
                                  {"-rwfence-maker", AL_QUEUE_FENCE_MAKER},
                                  {"-fence-unfinished", AL_QUEUE_FENCE_MAKER},
                                  {"-mutexfence-unfinished", AL_QUEUE_FENCE_MAKER},
                                  {"-rwfence-unfinished", AL_QUEUE_FENCE_MAKER}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* If the first `*length` bytes of `queue` end with one of the suffixes, takes it away from `*length`. */
static al_queue_part take(const char *queue, size_t *length, const suffix *table, size_t count) {
  for (size_t i = 0; i < count; i++) {
    size_t size = strlen(table[i].text);
    if (size > *length || memcmp(queue + *length - size, table[i].text, size) != 0) continue;
    *length -= size;
    return table[i].part;
  }
  return AL_QUEUE_OTHER;
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
  al_queue_part part = take(queue, length, of_slots, COUNT(of_slots));
  if (part != AL_QUEUE_OTHER) *slot = take_slot(queue, length);
  return *slot > 0 ? part : AL_QUEUE_OTHER;
}

static al_queue_part parse_ticket(const char *queue, size_t *length) {
  if (*length < TICKET_LENGTH) return AL_QUEUE_OTHER;
  size_t head = *length - TICKET_LENGTH;
  if (strspn(queue + head, "0123456789abcdef") != TICKET_LENGTH) return AL_QUEUE_OTHER;
  al_queue_part part = take(queue, &head, of_tickets, COUNT(of_tickets));
  if (part != AL_QUEUE_OTHER) *length = head;
  return part;
}

static al_queue_part parse(const char *queue, size_t *length, int *slot) {
  size_t whole = *length;
  al_queue_part part = parse_slot(queue, length, slot);
  if (part != AL_QUEUE_OTHER) return part;
  *length = whole; /* "x-B-bolt" without a number may end otherwise as well */
  part = parse_ticket(queue, length);
  return part != AL_QUEUE_OTHER ? part : take(queue, length, of_locks, COUNT(of_locks));
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
