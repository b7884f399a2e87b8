/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The descriptors of this process that belong to native sessions.
 *
 * A child of fork() has copies of them, and the broker sees the end of a connection only when its last copy is closed: a
 * child that outlives its parent would keep the parent's locks. So they are listed, and a handler of pthread_atfork()
 * replaces each of them by /dev/null in the child. The handler runs in the child of a program with threads, so it only
 * makes system calls: it takes no lock, allocates nothing and does not touch TLS.
 *
 * The child's list is empty then. It never closes, reads or writes a descriptor of a session of its parent: the child may
 * have closed that number and opened a file of its own, which got the same number. The copies of /dev/null stay open in
 * the child, unless the program closes them. Sessions that the child opens are listed as usual.
 *
 * The list is the one global of this library. It is a chain of blocks of atomic numbers, and blocks are never freed, so it
 * is consistent at each instant at which any thread may fork. dlclose() takes the handler away before it unloads it. */
#ifndef AL_TRANSPORT_DESCRIPTORS_H
#define AL_TRANSPORT_DESCRIPTORS_H

#include <stdbool.h>

#define AL_DESCRIPTORS_FIRST 3 /* after standard input, output and error */

/* Registers the handler, once for the process. False: no memory. */
bool al_descriptors_init(void);

/* Lists a descriptor. False: no memory. */
bool al_descriptors_add(int fd);

/* Takes a descriptor off the list; to be called before it is closed, as its number may then be anybody's. Not for the
 * descriptors of a session of the parent. False: it was not listed. */
bool al_descriptors_remove(int fd);

/* Removes and closes; -1 is none. Not for the descriptors of a session of the parent. */
void al_descriptors_close(int fd);

/* A new eventfd, listed: not blocking, close-on-exec, 3 or higher; -1: there is no descriptor or memory left. */
int al_descriptors_eventfd(unsigned value);

/* Makes sure that nothing that is opened from now on gets the number 0, 1 or 2: what the program then prints would go there.
 * Those that are closed become descriptors of "/" that can be neither read nor written: using them fails with EBADF, as
 * before. They stay, as another thread may be connecting, too, when this one is done; they are close-on-exec. */
void al_descriptors_spare_standard(void);

/* Between the opening of a descriptor and its listing another thread may fork, and its child keeps a copy. */
typedef struct al_forks {
  unsigned long ended;
} al_forks;

al_forks al_descriptors_forks(void);                      /* before opening */
bool al_descriptors_may_be_copied(const al_forks *since); /* after listing */

#endif
