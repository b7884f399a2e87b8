/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BLOCK_SIZE 256

typedef struct block {
  _Atomic int entries[BLOCK_SIZE]; /* a descriptor + 1; 0: free; negative: kept by the next child */
  struct block *_Atomic next;
} block;

static struct {
  block first;
  _Atomic bool is_registered;
  _Atomic unsigned long forks_begun, forks_ended;
} all;

/* ---- forks ------------------------------------------------------------------------------------------------------ */

static void before_fork(void) { all.forks_begun++; }

/* Ends what al_descriptors_keep_once() began. */
static void in_parent(void) {
  for (block *b = &all.first; b; b = b->next)
    for (int i = 0; i < BLOCK_SIZE; i++) {
      int kept = b->entries[i];
      if (kept < 0) atomic_compare_exchange_strong(&b->entries[i], &kept, -kept);
    }
  all.forks_ended++;
}

/* Closes the descriptor if there is neither /dev/null nor a descriptor left for it. */
static void replace(int fd, int substitute) {
  if (substitute < 0 || dup3(substitute, fd, O_CLOEXEC) < 0) close(fd);
}

/* Empties the list: the child may close these numbers and use them for files of its own. Neither the child nor a child
 * of its own may replace those. */
static void in_child(void) {
  int substitute = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (substitute < 0) substitute = open("/", O_PATH | O_CLOEXEC); /* in a chroot */
  for (block *b = &all.first; b; b = b->next)
    for (int i = 0; i < BLOCK_SIZE; i++) {
      int fd = b->entries[i] - 1;
      if (fd >= 0) replace(fd, substitute);
      b->entries[i] = 0;
    }
  if (substitute >= 0) close(substitute);
  all.forks_ended = all.forks_begun; /* forks by other threads, which do not exist in the child */
}

/* Two threads may both register the handler, which is harmless. */
bool al_descriptors_init(void) {
  if (all.is_registered) return true;
  if (pthread_atfork(before_fork, in_parent, in_child) != 0) return false;
  all.is_registered = true;
  return true;
}

al_forks al_descriptors_forks(void) { return (al_forks){.ended = all.forks_ended}; }

bool al_descriptors_may_be_copied(const al_forks *since) { return all.forks_begun != since->ended; }

/* ---- the list --------------------------------------------------------------------------------------------------- */

static bool exchange(int old, int new) {
  for (block *b = &all.first; b; b = b->next)
    for (int i = 0; i < BLOCK_SIZE; i++) {
      int expected = old;
      if (b->entries[i] == old && atomic_compare_exchange_strong(&b->entries[i], &expected, new)) return true;
    }
  return false;
}

/* Another thread may have appended a block first: this one goes behind it. */
static void append(block *new) {
  block *last = &all.first, *next = NULL;
  while (!atomic_compare_exchange_strong(&last->next, &next, new)) {
    last = next;
    next = NULL;
  }
}

bool al_descriptors_add(int fd) {
  if (exchange(0, fd + 1)) return true;
  block *new = calloc(1, sizeof *new);
  if (!new) return false;
  new->entries[0] = fd + 1;
  append(new);
  return true;
}

bool al_descriptors_remove(int fd) { return exchange(fd + 1, 0) || exchange(-(fd + 1), 0); }

void al_descriptors_keep_once(int fd) { exchange(fd + 1, -(fd + 1)); }

void al_descriptors_close(int fd) {
  if (fd >= 0 && al_descriptors_remove(fd)) close(fd);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

void al_descriptors_spare_standard(void) {
  for (int fd = 0; fd < AL_DESCRIPTORS_FIRST; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    int placeholder = open("/", O_PATH | O_CLOEXEC);
    if (placeholder >= AL_DESCRIPTORS_FIRST) close(placeholder); /* another thread was faster */
  }
}

/* Returns the descriptor, or a duplicate that is 3 or higher. If there is none left, closes it and returns -1. */
static int moved_up(int fd) {
  if (fd < 0 || fd >= AL_DESCRIPTORS_FIRST) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, AL_DESCRIPTORS_FIRST);
  close(fd);
  return higher;
}

int al_descriptors_eventfd(unsigned value) {
  int fd = moved_up(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd < 0 || al_descriptors_add(fd)) return fd;
  close(fd);
  return -1;
}
