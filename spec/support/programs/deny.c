/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Runs a program to which a system call is denied, as by the profile of a container or by an old kernel:
 *
 *     deny EPERM|ENOSYS CALL -- PROGRAM ARGUMENT...
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

#define CALL(name)                                                                                           \
  { #name, SYS_##name }

static const struct {
  const char *name;
  unsigned number;
} calls[] = {CALL(pidfd_send_signal), CALL(timerfd_create), CALL(timerfd_settime), CALL(setpgid),
             CALL(getdents64),        CALL(waitid),         CALL(pipe2),           CALL(signalfd4)};

int main(int argc, char **argv) {
  if (argc < 5 || strcmp(argv[3], "--") != 0) return 99;
  unsigned denied = SECCOMP_RET_ERRNO | (strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS), number = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (strcmp(calls[i].name, argv[2]) == 0) number = calls[i].number;
  struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, denied),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (number == 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 99;
  execvp(argv[4], argv + 4);
  return 99;
}
