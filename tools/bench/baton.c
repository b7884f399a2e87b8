/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A number that processes share and can wait on: in a file that each of them maps. */
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <linux/futex.h>
#include <lua.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TYPE "amqplocks.bench.baton"

static _Atomic uint32_t *check(lua_State *L) { return *(_Atomic uint32_t **)luaL_checkudata(L, 1, TYPE); }

/* baton.open(path): creates the file if needed, with zero in it; it stays open until the process ends */
static int open_baton(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  void **box = lua_newuserdata(L, sizeof *box);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(uint32_t)) != 0) return luaL_error(L, "%s: %s", path, strerror(errno));
  *box = mmap(NULL, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (*box == MAP_FAILED) return luaL_error(L, "%s: %s", path, strerror(errno));
  luaL_getmetatable(L, TYPE);
  lua_setmetatable(L, -2);
  return 1;
}

/* baton:pass() -> the number, after incrementing it; wakes all waiting processes */
static int pass(lua_State *L) {
  _Atomic uint32_t *baton = check(L);
  uint32_t value = atomic_fetch_add(baton, 1) + 1;
  syscall(SYS_futex, baton, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  lua_pushnumber(L, value);
  return 1;
}

/* baton:await(number, seconds): returns when the number is another one, or after so many seconds */
static int await(lua_State *L) {
  _Atomic uint32_t *baton = check(L);
  uint32_t value = (uint32_t)luaL_checknumber(L, 2);
  double seconds = luaL_checknumber(L, 3);
  struct timespec time = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  if (atomic_load(baton) == value) syscall(SYS_futex, baton, FUTEX_WAIT, value, &time, NULL, 0);
  return 0;
}

int luaopen_baton(lua_State *L) {
  luaL_newmetatable(L, TYPE);
  lua_newtable(L);
  lua_pushcfunction(L, pass);
  lua_setfield(L, -2, "pass");
  lua_pushcfunction(L, await);
  lua_setfield(L, -2, "await");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, open_baton);
  lua_setfield(L, -2, "open");
  return 1;
}
