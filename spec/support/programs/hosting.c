/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program that hosts Lua, for specs. It runs a Lua file, which gets luaopen_amqplocks as a function, and a function
 * that calls it in a new state without libraries and returns the error. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int luaopen_amqplocks(lua_State *L);

static int open_bare(lua_State *L) {
  lua_State *bare = luaL_newstate();
  lua_pushcfunction(bare, luaopen_amqplocks);
  int failed = lua_pcall(bare, 0, 0, 0);
  lua_pushstring(L, failed ? lua_tostring(bare, -1) : "no error");
  lua_close(bare);
  return 1;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  int failed = argc != 2 || luaL_loadfile(L, argv[1]) != 0;
  lua_pushcfunction(L, luaopen_amqplocks);
  lua_pushcfunction(L, open_bare);
  failed = failed || lua_pcall(L, 2, 0, 0) != 0;
  if (failed) fprintf(stderr, "%s\n", lua_tostring(L, -1));
  lua_close(L);
  return failed;
}
