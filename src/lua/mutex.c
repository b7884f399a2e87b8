/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * True mutexes. */
#include "lua/binding.h"

typedef struct mutex_box {
  al_mutex *mutex;
} mutex_box;

/* session:mutex(name, max_attempts, probe) -> mutex */
static int session_mutex(lua_State *L) {
  al_lua_session *session = al_lua_check_session(L, 1);
  const char *name = luaL_checkstring(L, 2);
  int max_attempts = (int)luaL_checknumber(L, 3);
  al_probing probing = al_lua_probing(L, 4);
  mutex_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_MUTEX);
  al_lua_keep(L, lua_gettop(L), 1);
  box->mutex = al_mutex_new(session->session, name, max_attempts, probing);
  return box->mutex ? 1 : luaL_error(L, "out of memory");
}

/* mutex:acquire([timeout [, fair [, priority [, poll]]]]) -> operation */
static int mutex_acquire(lua_State *L) {
  mutex_box *box = luaL_checkudata(L, 1, AL_LUA_MUTEX);
  luaL_argcheck(L, box->mutex, 1, "the mutex was given back");
  al_acquire_options options = al_lua_acquire_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  al_lua_check_session(L, session);
  al_op **op = al_lua_new_op(L, AL_LUA_LOCKED, session);
  *op = al_mutex_acquire(box->mutex, &options);
  return al_lua_begun(L, *op);
}

static int mutex_gc(lua_State *L) {
  mutex_box *box = luaL_checkudata(L, 1, AL_LUA_MUTEX);
  al_mutex_drop(box->mutex);
  box->mutex = NULL;
  return 0;
}

void al_lua_open_mutex(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", mutex_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"mutex", session_mutex}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_MUTEX, methods, mutex_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
