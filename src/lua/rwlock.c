/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Readers–writer locks. */
#include "lua/binding.h"

/* session:rwlock(name, max_attempts, probe [, fenced]) -> rwlock */
static int session_rwlock(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_lock_options options = {.max_attempts = (int)luaL_checknumber(L, 3),
                             .probing = al_lua_probing(L, 4),
                             .fenced = lua_toboolean(L, 5)};
  void **box = al_lua_new_resource(L, AL_LUA_RWLOCK);
  *box = al_rwlock_new(session, name, &options);
  return *box ? 1 : al_lua_out_of_memory(L);
}

static al_op *begin_read(void *rwlock, const al_acquire_options *options) {
  return al_rwlock_read(rwlock, options);
}

static al_op *begin_write(void *rwlock, const al_acquire_options *options) {
  return al_rwlock_write(rwlock, options);
}

/* rwlock:read([timeout [, fair [, priority [, poll [, patient [, settled]]]]]]) -> operation; likewise rwlock:write */
static int rwlock_read(lua_State *L) { return al_lua_acquire(L, AL_LUA_RWLOCK, begin_read); }

static int rwlock_write(lua_State *L) { return al_lua_acquire(L, AL_LUA_RWLOCK, begin_write); }

static void drop(void *rwlock) { al_rwlock_drop(rwlock); }

static int rwlock_gc(lua_State *L) { return al_lua_drop_resource(L, AL_LUA_RWLOCK, drop); }

void al_lua_open_rwlock(lua_State *L) {
  static const luaL_Reg methods[] = {{"read", rwlock_read}, {"write", rwlock_write}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"rwlock", session_rwlock}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_RWLOCK, methods, rwlock_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
