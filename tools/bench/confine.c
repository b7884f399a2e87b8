/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A thread that may make no system calls except to read the clock, to allocate memory and to end: any other call kills
 * the process. Code that runs in it to the end has made no others. */
#include <errno.h>
#include <lauxlib.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <lua.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name)                                                                                          \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* confine.begin() */
static int begin(lua_State *L) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(clock_gettime),
      ALLOW(brk),
      ALLOW(mmap),
      ALLOW(mremap),
      ALLOW(munmap),
      ALLOW(mprotect),
      ALLOW(madvise),
      ALLOW(exit_group),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return luaL_error(L, "no seccomp: %s", strerror(errno));
  return 0;
}

/* confine.leave(): the only way to end, without exit handlers or finalizers */
static int leave(lua_State *L) {
  (void)L;
  _exit(0);
}

int luaopen_confine(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, begin);
  lua_setfield(L, -2, "begin");
  lua_pushcfunction(L, leave);
  lua_setfield(L, -2, "leave");
  return 1;
}
