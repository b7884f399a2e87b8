/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * require "amqplocks.core" */
#include "lua/binding.h"

/* core.name_error(name) -> nil if it is a name for a lock, else what is wrong with it. */
static int name_error(lua_State *L) {
  size_t length;
  char why[AL_MESSAGE_SIZE];
  const char *name = luaL_checklstring(L, 1, &length);
  if (al_name_check(name, length, why)) return 0;
  lua_pushstring(L, why);
  return 1;
}

__attribute__((visibility("default"))) int luaopen_amqplocks_core(lua_State *L);

int luaopen_amqplocks_core(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, name_error);
  lua_setfield(L, -2, "name_error");
  lua_pushliteral(L, AL_VERSION);
  lua_setfield(L, -2, "version");
  lua_pushinteger(L, AL_SLOTS_MAX);
  lua_setfield(L, -2, "slots_max");
  al_lua_open_session(L);
  al_lua_open_op(L);
  al_lua_open_lock(L);
  al_lua_open_semaphore(L);
  al_lua_open_token_semaphore(L);
  al_lua_open_mutex(L);
  al_lua_open_rwlock(L);
  al_lua_open_admin(L);
  al_lua_open_token_admin(L);
  return 1;
}
