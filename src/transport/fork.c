/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/fork.h"

#include <sys/mman.h>
#include <unistd.h>

bool al_fork_init(al_fork *fork) {
  *fork = (al_fork){.size = (size_t)sysconf(_SC_PAGESIZE)};
  void *page = mmap(NULL, fork->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  if (madvise(page, fork->size, MADV_WIPEONFORK) != 0) fork->pid = getpid();
  fork->page = page;
  *fork->page = 1;
  return true;
}

bool al_fork_happened(const al_fork *fork) {
  return *fork->page == 0 || (fork->pid != 0 && fork->pid != getpid());
}

void al_fork_free(al_fork *fork) {
  if (fork->page) munmap(fork->page, fork->size);
  fork->page = NULL;
}
