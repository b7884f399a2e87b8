// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built by spec/support/process.lua: functions for forking, which Lua lacks.

#include "module.h"
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// fork() -> process id; 0 in the child
static int fork_process(lua_State *L) {
  lua_pushinteger(L, fork());
  return 1;
}

// wait(pid) -> its status, or 128 + its signal
static int wait_process(lua_State *L) {
  int status = 0;
  if (waitpid((pid_t)luaL_checkinteger(L, 1), &status, 0) < 0) return luaL_error(L, "no such child");
  lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  return 1;
}

// exit(status): at once, without finalizers or exit handlers
static int exit_process(lua_State *L) { _exit((int)luaL_checkinteger(L, 1)); }

// close_all(): every descriptor but standard input, output and error, as a daemon does when it begins
static int close_all(lua_State *L) {
  (void)L;
  for (int fd = 3; fd < 1024; fd++) close(fd);
  return 0;
}

int luaopen_fork(lua_State *L) {
  static const luaL_Reg functions[] = {{"fork", fork_process},
                                       {"wait", wait_process},
                                       {"exit", exit_process},
                                       {"close_all", close_all},
                                       {NULL, NULL}};
  return module(L, functions);
}
