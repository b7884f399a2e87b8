/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Semaphores, for those who lock. */
#include "lua/binding.h"

typedef struct semaphore_box {
  al_semaphore *semaphore;
} semaphore_box;

al_acquire_options al_lua_acquire_options(lua_State *L, int first) {
  al_acquire_options options;
  al_acquire_options_init(&options);
  options.timeout = al_lua_time(L, first, options.timeout);
  options.fair = lua_toboolean(L, first + 1);
  options.priority = (int)luaL_optnumber(L, first + 2, 0);
  options.poll = al_lua_time(L, first + 3, options.poll);
  return options;
}

al_probing al_lua_probing(lua_State *L, int index) {
  static const char *const probings[] = {"auto", "publish", "passive", NULL};
  return (al_probing)luaL_checkoption(L, index, NULL, probings);
}

/* session:semaphore(name, strategy, max_attempts, probe [, silent [, most]]) -> semaphore */
static int session_semaphore(lua_State *L) {
  static const char *const strategies[] = {"ascending", "random", "last", NULL};
  al_lua_session *session = al_lua_check_session(L, 1);
  const char *name = luaL_checkstring(L, 2);
  al_semaphore_options options = {.strategy = (al_strategy)luaL_checkoption(L, 3, NULL, strategies),
                                  .max_attempts = (int)luaL_checknumber(L, 4),
                                  .probing = al_lua_probing(L, 5),
                                  .silent = lua_toboolean(L, 6),
                                  .most = (int)luaL_optnumber(L, 7, 0)};
  semaphore_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_SEMAPHORE);
  al_lua_keep(L, lua_gettop(L), 1);
  box->semaphore = al_semaphore_new(session->session, name, &options);
  return box->semaphore ? 1 : luaL_error(L, "out of memory");
}

/* semaphore:acquire([timeout [, fair [, priority [, poll]]]]) -> operation */
static int semaphore_acquire(lua_State *L) {
  semaphore_box *box = luaL_checkudata(L, 1, AL_LUA_SEMAPHORE);
  luaL_argcheck(L, box->semaphore, 1, "the semaphore was given back");
  al_acquire_options options = al_lua_acquire_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  al_lua_check_session(L, session);
  al_op **op = al_lua_new_op(L, AL_LUA_LOCKED, session);
  *op = al_semaphore_acquire(box->semaphore, &options);
  return al_lua_begun(L, *op);
}

static int semaphore_gc(lua_State *L) {
  semaphore_box *box = luaL_checkudata(L, 1, AL_LUA_SEMAPHORE);
  al_semaphore_drop(box->semaphore);
  box->semaphore = NULL;
  return 0;
}

void al_lua_open_semaphore(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", semaphore_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"semaphore", session_semaphore}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_SEMAPHORE, methods, semaphore_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
