/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Token semaphores: acquiring. Their administration is in token_admin.c. */
#include "lua/binding.h"

/* session:token_semaphore(name [, quorum [, fenced]]) -> token semaphore; `fenced` only with `quorum` */
static int session_token_semaphore(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_token_semaphore_options options = {.quorum = lua_toboolean(L, 3), .fenced = lua_toboolean(L, 4)};
  void **box = al_lua_new_resource(L, AL_LUA_TOKEN_SEMAPHORE);
  *box = al_token_semaphore_new(session, name, &options);
  return *box ? 1 : al_lua_out_of_memory(L);
}

static al_op *begin_acquire(void *token_semaphore, const al_acquire_options *options) {
  return al_token_semaphore_acquire(token_semaphore, options);
}

/* token_semaphore:acquire([timeout [, fair [, priority [, poll [, patient [, settled [, count]]]]]]]) -> operation */
static int token_semaphore_acquire(lua_State *L) {
  return al_lua_acquire(L, AL_LUA_TOKEN_SEMAPHORE, begin_acquire);
}

static void drop(void *token_semaphore) { al_token_semaphore_drop(token_semaphore); }

static int token_semaphore_gc(lua_State *L) { return al_lua_drop_resource(L, AL_LUA_TOKEN_SEMAPHORE, drop); }

void al_lua_open_token_semaphore(lua_State *L) {
  static const luaL_Reg methods[] = {{"acquire", token_semaphore_acquire}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"token_semaphore", session_token_semaphore}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_TOKEN_SEMAPHORE, methods, token_semaphore_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
