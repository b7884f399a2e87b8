/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include <string.h>

#include "lua/binding.h"

void *al_lua_new_box(lua_State *L, size_t size, const char *type) {
#if LUA_VERSION_NUM >= 504
  void *box = lua_newuserdatauv(L, size, 1);
#else
  void *box = lua_newuserdata(L, size);
#endif
  memset(box, 0, size);
  luaL_getmetatable(L, type);
  lua_setmetatable(L, -2);
  return box;
}

/* In Lua 5.1 and LuaJIT only a table can be attached to a userdata. */
#if LUA_VERSION_NUM == 501
void al_lua_keep(lua_State *L, int child, int parent) {
  lua_pushvalue(L, child);
  lua_createtable(L, 1, 0);
  lua_pushvalue(L, parent < 0 ? parent - 2 : parent);
  lua_rawseti(L, -2, 1);
  lua_setfenv(L, -2);
  lua_pop(L, 1);
}

void al_lua_keep_instead(lua_State *L, int child, int parent) {
  lua_getfenv(L, child);
  lua_pushvalue(L, parent);
  lua_rawseti(L, -2, 1);
  lua_pop(L, 1);
}

void al_lua_kept(lua_State *L, int child) {
  lua_getfenv(L, child);
  lua_rawgeti(L, -1, 1);
  lua_remove(L, -2);
}
#else
void al_lua_keep(lua_State *L, int child, int parent) {
  lua_pushvalue(L, child);
  lua_pushvalue(L, parent < 0 ? parent - 1 : parent);
  lua_setuservalue(L, -2);
  lua_pop(L, 1);
}

void al_lua_keep_instead(lua_State *L, int child, int parent) { al_lua_keep(L, child, parent); }

void al_lua_kept(lua_State *L, int child) { lua_getuservalue(L, child); }
#endif

size_t al_lua_length(lua_State *L, int index) {
#if LUA_VERSION_NUM == 501
  return lua_objlen(L, index);
#else
  return lua_rawlen(L, index);
#endif
}

static void set_methods(lua_State *L, const luaL_Reg *methods) {
  for (; methods->name; methods++) {
    lua_pushcfunction(L, methods->func);
    lua_setfield(L, -2, methods->name);
  }
}

void al_lua_new_type(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc) {
  luaL_newmetatable(L, type);
  lua_pushstring(L, type);
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  set_methods(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

void al_lua_add_methods(lua_State *L, const char *type, const luaL_Reg *methods) {
  luaL_getmetatable(L, type);
  lua_getfield(L, -1, "__index");
  set_methods(L, methods);
  lua_pop(L, 2);
}

void al_lua_close_by(lua_State *L, const char *type, lua_CFunction close) {
  luaL_getmetatable(L, type);
  lua_pushcfunction(L, close);
  lua_setfield(L, -2, "__close");
  lua_pop(L, 1);
}

int64_t al_lua_time(lua_State *L, int index, int64_t otherwise) {
  if (lua_isnoneornil(L, index)) return otherwise;
  double seconds = luaL_checknumber(L, index);
  if (!(seconds >= 0)) return 0;
  return seconds < 1e9 ? (int64_t)(seconds * (double)AL_SECOND) : AL_NEVER / 2;
}

int64_t al_lua_time_field(lua_State *L, int table, const char *key, int64_t otherwise) {
  lua_getfield(L, table, key);
  int64_t time = al_lua_time(L, -1, otherwise);
  lua_pop(L, 1);
  return time;
}

void al_lua_push_integer(lua_State *L, int64_t integer) {
#if LUA_VERSION_NUM >= 503
  lua_pushinteger(L, integer);
#else
  lua_pushnumber(L, (lua_Number)integer);
#endif
}
