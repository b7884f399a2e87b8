// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// To be preloaded (LD_PRELOAD), and also a Lua module: clocks of this process that jump when told to. The wall clock
// jumps as if an administrator set it. The clock that includes suspension jumps as if the machine had slept.

#define _GNU_SOURCE
#include "module.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic time_t wall, slept;

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += wall;
  if (clock == CLOCK_BOOTTIME) now->tv_sec += slept;
  return result;
}

static int set(lua_State *L) {
  wall += (time_t)luaL_checkinteger(L, 1);
  return 0;
}

static int sleep_for(lua_State *L) {
  slept += (time_t)luaL_checkinteger(L, 1);
  return 0;
}

int luaopen_jump(lua_State *L) {
  static const luaL_Reg functions[] = {{"set", set}, {"sleep", sleep_for}, {NULL, NULL}};
  return module(L, functions);
}
