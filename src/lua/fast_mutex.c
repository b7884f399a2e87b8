/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Fast mutexes. */
#include "lua/binding.h"

/* session:fast_mutex(name) -> fast mutex */
static int session_fast_mutex(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  void **box = al_lua_new_resource(L, AL_LUA_FAST_MUTEX);
  *box = al_fast_mutex_new(session, name);
  return *box ? 1 : al_lua_out_of_memory(L);
}

static al_op *begin_acquire(void *mutex, const al_acquire_options *options) {
  return al_fast_mutex_acquire(mutex, options);
}

/* fast_mutex:acquire([timeout [, fair [, priority [, poll [, patient [, settled]]]]]]) -> operation */
static int fast_mutex_acquire(lua_State *L) { return al_lua_acquire(L, AL_LUA_FAST_MUTEX, begin_acquire); }

static void drop(void *mutex) { al_fast_mutex_drop(mutex); }

static int fast_mutex_gc(lua_State *L) { return al_lua_drop_resource(L, AL_LUA_FAST_MUTEX, drop); }

void al_lua_open_fast_mutex(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", fast_mutex_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"fast_mutex", session_fast_mutex}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_FAST_MUTEX, methods, fast_mutex_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
