/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Token semaphores, for those who lock. */
#include "lua/binding.h"

typedef struct token_semaphore_box {
  al_token_semaphore *semaphore;
} token_semaphore_box;

/* session:token_semaphore(name [, quorum]) -> token semaphore */
static int session_token_semaphore(lua_State *L) {
  al_lua_session *session = al_lua_check_session(L, 1);
  const char *name = luaL_checkstring(L, 2);
  token_semaphore_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_TOKEN_SEMAPHORE);
  al_lua_keep(L, lua_gettop(L), 1);
  box->semaphore = al_token_semaphore_new(session->session, name, lua_toboolean(L, 3));
  return box->semaphore ? 1 : luaL_error(L, "out of memory");
}

/* token_semaphore:acquire([timeout [, fair [, priority [, poll]]]]) -> operation */
static int token_semaphore_acquire(lua_State *L) {
  token_semaphore_box *box = luaL_checkudata(L, 1, AL_LUA_TOKEN_SEMAPHORE);
  luaL_argcheck(L, box->semaphore, 1, "the semaphore was given back");
  al_acquire_options options = al_lua_acquire_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  al_lua_check_session(L, session);
  al_op **op = al_lua_new_op(L, AL_LUA_LOCKED, session);
  *op = al_token_semaphore_acquire(box->semaphore, &options);
  return al_lua_begun(L, *op);
}

static int token_semaphore_gc(lua_State *L) {
  token_semaphore_box *box = luaL_checkudata(L, 1, AL_LUA_TOKEN_SEMAPHORE);
  al_token_semaphore_drop(box->semaphore);
  box->semaphore = NULL;
  return 0;
}

void al_lua_open_token_semaphore(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", token_semaphore_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"token_semaphore", session_token_semaphore}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_TOKEN_SEMAPHORE, methods, token_semaphore_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
