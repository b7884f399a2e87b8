/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Mutexes: a kind of lock of their own, not semaphores with one slot. */
#include "lua/binding.h"

/* session:mutex(name, max_attempts, probe [, fenced]) -> mutex */
static int session_mutex(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_lock_options options = {.max_attempts = (int)luaL_checknumber(L, 3),
                             .probing = al_lua_probing(L, 4),
                             .fenced = lua_toboolean(L, 5)};
  void **box = al_lua_new_resource(L, AL_LUA_MUTEX);
  *box = al_mutex_new(session, name, &options);
  return *box ? 1 : al_lua_out_of_memory(L);
}

static al_op *begin_acquire(void *mutex, const al_acquire_options *options) {
  return al_mutex_acquire(mutex, options);
}

/* mutex:acquire([timeout [, fair [, priority [, poll [, patient [, settled]]]]]]) -> operation */
static int mutex_acquire(lua_State *L) { return al_lua_acquire(L, AL_LUA_MUTEX, begin_acquire); }

static void drop(void *mutex) { al_mutex_drop(mutex); }

static int mutex_gc(lua_State *L) { return al_lua_drop_resource(L, AL_LUA_MUTEX, drop); }

void al_lua_open_mutex(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", mutex_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"mutex", session_mutex}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_MUTEX, methods, mutex_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
