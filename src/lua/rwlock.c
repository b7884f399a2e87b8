/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Readers–writer locks. */
#include "lua/binding.h"

typedef struct rwlock_box {
  al_rwlock *rwlock;
} rwlock_box;

/* session:rwlock(name, max_attempts, probe) -> rwlock */
static int session_rwlock(lua_State *L) {
  al_lua_session *session = al_lua_check_session(L, 1);
  const char *name = luaL_checkstring(L, 2);
  int max_attempts = (int)luaL_checknumber(L, 3);
  al_probing probing = al_lua_probing(L, 4);
  rwlock_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_RWLOCK);
  al_lua_keep(L, lua_gettop(L), 1);
  box->rwlock = al_rwlock_new(session->session, name, max_attempts, probing);
  return box->rwlock ? 1 : luaL_error(L, "out of memory");
}

static int begin(lua_State *L, al_op *acquire(al_rwlock *, const al_acquire_options *)) {
  rwlock_box *box = luaL_checkudata(L, 1, AL_LUA_RWLOCK);
  luaL_argcheck(L, box->rwlock, 1, "the lock was given back");
  al_acquire_options options = al_lua_acquire_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  al_lua_check_session(L, session);
  al_op **op = al_lua_new_op(L, AL_LUA_LOCKED, session);
  *op = acquire(box->rwlock, &options);
  return al_lua_begun(L, *op);
}

/* rwlock:read([timeout [, fair [, priority [, poll]]]]) -> operation, and so write */
static int rwlock_read(lua_State *L) { return begin(L, al_rwlock_read); }

static int rwlock_write(lua_State *L) { return begin(L, al_rwlock_write); }

static int rwlock_gc(lua_State *L) {
  rwlock_box *box = luaL_checkudata(L, 1, AL_LUA_RWLOCK);
  al_rwlock_drop(box->rwlock);
  box->rwlock = NULL;
  return 0;
}

void al_lua_open_rwlock(lua_State *L) {
  static const luaL_Reg methods[] = {{"read", rwlock_read}, {"write", rwlock_write}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"rwlock", session_rwlock}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_RWLOCK, methods, rwlock_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
