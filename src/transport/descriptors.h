/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The list of the descriptors of this process that belong to native sessions.
 *
 * A child of fork() has copies of these descriptors. The broker sees the end of a connection only when its last copy is
 * closed, so a child that outlives its parent would keep the parent's locks. Therefore a handler of pthread_atfork()
 * replaces each listed descriptor by /dev/null in the child. It runs in the child of a program that may have threads,
 * so it only makes system calls: it takes no lock, allocates nothing and does not touch TLS.
 *
 * The handler leaves the child's list empty. The child never closes, reads or writes a descriptor of a session of its
 * parent: the program may have closed that number, and opened a file of its own that got the same number. The copies of
 * /dev/null stay open in the child, unless the program closes them. Sessions that the child opens are listed as usual.
 *
 * The list is the one global of this library. It is a chain of blocks of atomic numbers, and blocks are never freed. So
 * the list is consistent at each instant at which any thread may fork. dlclose() removes the handler before it unloads
 * the library. */
#ifndef AL_TRANSPORT_DESCRIPTORS_H
#define AL_TRANSPORT_DESCRIPTORS_H

#include <stdbool.h>

#define AL_DESCRIPTORS_FIRST 3 /* 0 to 2 are standard input, output and error */

/* Registers the handler, once for each process. Returns false if there is no memory. */
bool al_descriptors_init(void);

/* Lists a descriptor. Returns false if there is no memory. */
bool al_descriptors_add(int fd);

/* The next fork leaves this descriptor, if it is listed, as it is in the child. */
void al_descriptors_keep_once(int fd);

/* Removes a descriptor from the list. Call it before closing the descriptor, as another file may get its number after
 * that. Not for the descriptors of a session of the parent. Returns false if it was not listed. */
bool al_descriptors_remove(int fd);

/* Removes a descriptor from the list and closes it, if it is listed; -1: none. Not for the descriptors of a session of
 * the parent. */
void al_descriptors_close(int fd);

/* Returns a new eventfd that is listed, non-blocking, close-on-exec, and 3 or higher. -1: there is no descriptor or
 * memory left. */
int al_descriptors_eventfd(unsigned value);

/* Makes sure that no descriptor that is opened from now on gets the number 0, 1 or 2: the program's output would go to
 * it. Each of these numbers that is closed becomes a descriptor of "/" that can be neither read nor written. Using it
 * fails with EBADF, as before. These placeholders are close-on-exec. They stay open, as another thread may still be
 * connecting when this one is done. */
void al_descriptors_spare_standard(void);

/* Detects forks by another thread between the opening of a descriptor and its listing: the child keeps a copy. */
typedef struct al_forks {
  unsigned long ended;
} al_forks;

al_forks al_descriptors_forks(void);                      /* before opening */
bool al_descriptors_may_be_copied(const al_forks *since); /* after listing */

#endif
