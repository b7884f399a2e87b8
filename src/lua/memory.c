/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Results and errors when memory runs out, in C or in Lua. The messages are made when the module is loaded, so
 * returning them needs no memory. */
#include "lua/binding.h"

enum { MESSAGE = 1, CODE };

static const char words; /* its address is the key of the messages in the registry */

static void push_key(lua_State *L) { lua_pushlightuserdata(L, (void *)&words); }

int al_lua_no_memory(lua_State *L) {
  lua_settop(L, 0);
  lua_pushnil(L);
  push_key(L);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_rawgeti(L, 2, MESSAGE);
  lua_rawgeti(L, 2, CODE);
  lua_remove(L, 2);
  return 3;
}

int al_lua_out_of_memory(lua_State *L) {
  lua_pushliteral(L, "not enough memory");
  return lua_error(L);
}

/* Another error comes from a finalizer of other code: Lua up to 5.3 raises it wherever the garbage collector runs. */
bool al_lua_try(lua_State *L, int arguments) {
  int status = lua_pcall(L, arguments, 1, 0);
  if (status == LUA_ERRMEM) lua_pop(L, 1);
  if (status != 0 && status != LUA_ERRMEM) lua_error(L);
  return status == 0;
}

void al_lua_open_memory(lua_State *L) {
  push_key(L);
  lua_createtable(L, CODE, 0);
  lua_pushfstring(L, "%s: there is not enough memory", al_code_name(AL_NO_MEMORY));
  lua_rawseti(L, -2, MESSAGE);
  lua_pushstring(L, al_code_name(AL_NO_MEMORY));
  lua_rawseti(L, -2, CODE);
  lua_rawset(L, LUA_REGISTRYINDEX);
}
