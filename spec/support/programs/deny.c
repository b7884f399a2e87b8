/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Runs a program to which system calls are denied, as by the profile of a container or by an old kernel:
 *
 *     deny EPERM|ENOSYS CALL... -- PROGRAM ARGUMENT...
 *
 * It exits with 99 if there is no seccomp here, or it does not know the call. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS_MOST 16
#define CALL(name)                                                                                           \
  { #name, SYS_##name }

static const struct {
  const char *name;
  unsigned number;
} calls[] = {CALL(pidfd_open), CALL(pidfd_send_signal), CALL(prctl),     CALL(clone3),  CALL(eventfd2),
             CALL(signalfd4),  CALL(timerfd_create),    CALL(getrandom), CALL(setpgid), CALL(setsid),
             CALL(getsid),     CALL(timerfd_settime),   CALL(madvise),   CALL(waitid),  CALL(dup3),
             CALL(pipe2),      CALL(getdents64)};

static int number_of(const char *name) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (strcmp(calls[i].name, name) == 0) return (int)calls[i].number;
  return -1;
}

int main(int argc, char **argv) {
  struct sock_filter filter[2 * CALLS_MOST + 2] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short length = 1;
  int at = 2;
  if (argc < 5) return 99;
  unsigned denied = SECCOMP_RET_ERRNO | (strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS);
  for (; at < argc && at < 2 + CALLS_MOST && strcmp(argv[at], "--") != 0; at++) {
    int number = number_of(argv[at]);
    if (number < 0) return 99;
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, denied);
  }
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {.len = length, .filter = filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 99;
  execvp(argv[at + 1], argv + at + 1);
  return 99;
}
