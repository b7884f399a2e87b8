// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// What the Lua modules of specs share.

#include <lauxlib.h>
#include <lua.h>

// Leaves a table of these functions on the stack: the name for that differs from Lua to Lua.
static inline int module(lua_State *L, const luaL_Reg *functions) {
  lua_newtable(L);
  for (; functions->name; functions++) {
    lua_pushcfunction(L, functions->func);
    lua_setfield(L, -2, functions->name);
  }
  return 1;
}
