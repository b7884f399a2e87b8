/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * amqp-locks inside a program that hosts Lua: the module and its Lua part in one archive, for
 *
 *     int luaopen_amqplocks(lua_State *L);
 *
 * which gives the module and registers everything that it, or a program in Lua, may require: each module as a function in
 * package.preload, where `require` looks first. No file is looked for, so one that is installed is never met. A module that
 * is loaded already stays the one there is.
 *
 * There is nothing here but constants: states on different threads may do all this at once. */
#include <lauxlib.h>
#include <lua.h>
#include <stddef.h>
#include <stdint.h>

typedef struct al_part {
  const char *module, *chunk;
  const unsigned char *source;
  size_t size;
} al_part;

#include "parts.h" /* made by `pack`: parts[] */

#define PARTS (sizeof parts / sizeof *parts)

int luaopen_amqplocks(lua_State *L);
int luaopen_amqplocks_core(lua_State *L);

/* Upvalue: the part. Arguments: what `require` gives. */
static int load_part(lua_State *L) {
  const al_part *part = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 1);
  if (luaL_loadbuffer(L, (const char *)part->source, part->size, part->chunk) != 0) return lua_error(L);
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static void push_loader(lua_State *L, const al_part *part) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)part);
  lua_pushcclosure(L, load_part, 1);
}

/* Leaves nothing but a table on top. */
static void push_table(lua_State *L, int at, const char *name) {
  lua_getfield(L, at, name);
  if (!lua_istable(L, -1))
    luaL_error(L, "amqplocks: this state has no `package` yet: luaL_openlibs() comes first");
}

static void register_parts(lua_State *L, int preload) {
  for (size_t i = 0; i < PARTS; i++) {
    push_loader(L, &parts[i]);
    lua_setfield(L, preload, parts[i].module);
  }
  lua_pushcfunction(L, luaopen_amqplocks_core);
  lua_setfield(L, preload, "amqplocks.core");
}

/* Not by `require`: it may be `require "amqplocks"` that has called us. */
static void load_first(lua_State *L, int preload) {
  lua_getfield(L, preload, "amqplocks");
  lua_pushliteral(L, "amqplocks");
  lua_call(L, 1, 1);
}

int luaopen_amqplocks(lua_State *L) {
  lua_settop(L, 0);
  luaL_checkstack(L, 10, "amqplocks");
  push_table(L, LUA_REGISTRYINDEX, "_LOADED"); /* as every Lua calls it: package.loaded */
  lua_getfield(L, 1, "amqplocks");
  if (lua_istable(L, -1)) return 1;
  lua_settop(L, 1);
  push_table(L, 1, "package");
  push_table(L, 2, "preload");
  register_parts(L, 3);
  load_first(L, 3);
  lua_pushvalue(L, -1);
  lua_setfield(L, 1, "amqplocks");
  return 1;
}
