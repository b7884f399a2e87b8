/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/descriptors.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#define LOOKED_AT 4096 /* a shell gives low numbers */

static bool was_given[LOOKED_AT];

static void fill_standard(int flags) {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    int null = open("/dev/null", mode | flags); /* the lowest number that is free */
    if (null > fd) close(null);
  }
}

void cli_descriptors_begin(void) {
  for (int fd = 0; fd < LOOKED_AT; fd++) was_given[fd] = fcntl(fd, F_GETFD) >= 0;
  fill_standard(O_CLOEXEC);
}

void cli_descriptors_leave(void) {
  for (int fd = 0; fd < LOOKED_AT; fd++)
    if (was_given[fd] || fd <= 2) close(fd);
  fill_standard(0);
}

void cli_descriptors_keep_back(int fd) {
  int flags = fcntl(fd, F_GETFD);
  if (flags >= 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}
