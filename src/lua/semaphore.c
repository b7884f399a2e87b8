/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Semaphores: acquiring. Their administration is in admin.c. */
#include "lua/binding.h"

/* session:semaphore(name, strategy, max_attempts, probe [, silent [, most [, fenced]]]) -> semaphore */
static int session_semaphore(lua_State *L) {
  static const char *const strategies[] = {"ascending", "random", "last", NULL};
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_semaphore_options options = {.strategy = (al_strategy)luaL_checkoption(L, 3, NULL, strategies),
                                  .max_attempts = (int)luaL_checknumber(L, 4),
                                  .probing = al_lua_probing(L, 5),
                                  .silent = lua_toboolean(L, 6),
                                  .most = (int)luaL_optnumber(L, 7, 0),
                                  .fenced = lua_toboolean(L, 8)};
  void **box = al_lua_new_resource(L, AL_LUA_SEMAPHORE);
  *box = al_semaphore_new(session, name, &options);
  return *box ? 1 : al_lua_out_of_memory(L);
}

static al_op *begin_acquire(void *semaphore, const al_acquire_options *options) {
  return al_semaphore_acquire(semaphore, options);
}

/* semaphore:acquire([timeout [, fair [, priority [, poll [, patient [, settled [, count]]]]]]]) -> operation */
static int semaphore_acquire(lua_State *L) { return al_lua_acquire(L, AL_LUA_SEMAPHORE, begin_acquire); }

static void drop(void *semaphore) { al_semaphore_drop(semaphore); }

static int semaphore_gc(lua_State *L) { return al_lua_drop_resource(L, AL_LUA_SEMAPHORE, drop); }

void al_lua_open_semaphore(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", semaphore_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"semaphore", session_semaphore}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_SEMAPHORE, methods, semaphore_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
