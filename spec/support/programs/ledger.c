// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built by spec/support/process.lua: a file to which many processes append lines. Each line is one write,
// so its place in the file is the order of events, and a process that is killed leaves no half of one. Locks are flock's:
// the kernel releases that of a process that dies.

#include "module.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int fail(lua_State *L, const char *what) { return luaL_error(L, "%s: %s", what, strerror(errno)); }

// open(path) -> descriptor
static int open_file(lua_State *L) {
  int fd = open(luaL_checkstring(L, 1), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return fail(L, "open");
  lua_pushinteger(L, fd);
  return 1;
}

// append(descriptor, line)
static int append(lua_State *L) {
  size_t length;
  const char *line = luaL_checklstring(L, 2, &length);
  if (write((int)luaL_checkinteger(L, 1), line, length) != (ssize_t)length) return fail(L, "write");
  return 0;
}

// lock(descriptor): waits until no other process has it
static int lock(lua_State *L) {
  while (flock((int)luaL_checkinteger(L, 1), LOCK_EX) != 0)
    if (errno != EINTR) return fail(L, "flock");
  return 0;
}

static int unlock(lua_State *L) {
  if (flock((int)luaL_checkinteger(L, 1), LOCK_UN) != 0) return fail(L, "flock");
  return 0;
}

int luaopen_ledger(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"open", open_file}, {"append", append}, {"lock", lock}, {"unlock", unlock}, {NULL, NULL}};
  return module(L, functions);
}
