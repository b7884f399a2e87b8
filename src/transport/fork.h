/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Detecting a fork without a system call, by a page that the kernel wipes in the child. A child inherits the parent's
 * sockets, and must not write to them: the broker would take its bytes for the parent's. */
#ifndef AL_TRANSPORT_FORK_H
#define AL_TRANSPORT_FORK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct al_fork {
  unsigned char *page; /* its first byte is 1, and 0 in a child */
  size_t size;
  pid_t pid; /* compared where the kernel cannot wipe pages; otherwise 0 */
} al_fork;

bool al_fork_init(al_fork *fork); /* false: no memory */

/* True in a child of the process that called al_fork_init(). */
bool al_fork_happened(const al_fork *fork);

void al_fork_free(al_fork *fork);

#endif
