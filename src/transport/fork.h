/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Noticing a fork without a system call: a page that the kernel wipes in the child. A child inherits the parent's
 * sockets, and whatever it wrote there it would write in the parent's name. */
#ifndef AL_TRANSPORT_FORK_H
#define AL_TRANSPORT_FORK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct al_fork {
  unsigned char *page; /* its first byte is 1, and 0 in a child */
  size_t size;
  pid_t pid; /* where the kernel cannot wipe; 0 otherwise */
} al_fork;

bool al_fork_init(al_fork *fork); /* false: no memory */
bool al_fork_happened(const al_fork *fork);
void al_fork_free(al_fork *fork);

#endif
