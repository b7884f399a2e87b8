// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built by spec/support/process.lua: the machine's clock, which no process sets and which goes on during
// suspension. Timestamps of several processes can be compared by it.

#include "module.h"
#include <time.h>

// now() -> seconds, to the nanosecond
static int now(lua_State *L) {
  struct timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  lua_pushnumber(L, (lua_Number)time.tv_sec + (lua_Number)time.tv_nsec / 1e9);
  return 1;
}

int luaopen_clock(lua_State *L) {
  static const luaL_Reg functions[] = {{"now", now}, {NULL, NULL}};
  return module(L, functions);
}
