// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built by spec/support/process.lua: a host with an allocator of its own, which fails on demand. It
// creates a second Lua state, and closes it.

#include "module.h"
#include <lualib.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MOST 64

typedef struct host {
  long asked, failed;
  long fails_from, fails_to; // from 0: nothing fails
  long blocks;               // not freed yet
  jmp_buf panicked;
  int note_count;
  char notes[NOTES_MOST][256];
} host;

static bool fails(host *self) {
  long number = ++self->asked;
  if (self->fails_from == 0 || number < self->fails_from || number > self->fails_to) return false;
  self->failed++;
  return true;
}

// Lua requires that shrinking a block never fails.
static void *allocate(void *data, void *block, size_t old, size_t size) {
  host *self = data;
  if (size == 0) {
    if (block) self->blocks--;
    free(block);
    return NULL;
  }
  if ((!block || size > old) && fails(self)) return NULL;
  void *moved = realloc(block, size);
  if (moved && !block) self->blocks++;
  return moved;
}

static host *host_of(lua_State *L) {
  void *data;
  lua_getallocf(L, &data);
  return data;
}

static int panic(lua_State *L) { longjmp(host_of(L)->panicked, 1); }

// note(word, …): recorded outside of Lua, without Lua's memory.
static int note(lua_State *L) {
  host *self = host_of(L);
  if (self->note_count == NOTES_MOST) return 0;
  char *line = self->notes[self->note_count++];
  size_t used = 0;
  for (int i = 1; i <= lua_gettop(L) && used < sizeof self->notes[0]; i++) {
    const char *word = lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i)
                       : lua_toboolean(L, i)         ? "yes"
                                                     : "no";
    used += (size_t)snprintf(line + used, sizeof self->notes[0] - used, "%s%s", i > 1 ? " " : "", word);
  }
  return 0;
}

// arm(): the counting of allocations begins
static int arm(lua_State *L) {
  host *self = host_of(L);
  self->asked = 0;
  self->fails_from = (long)lua_tointeger(L, lua_upvalueindex(1));
  self->fails_to = (long)lua_tointeger(L, lua_upvalueindex(2));
  return 0;
}

static int prepare(lua_State *L) {
  luaL_openlibs(L);
  return 0;
}

static void begin(lua_State *inner, lua_State *outer) {
  lua_pushcfunction(inner, prepare);
  if (lua_pcall(inner, 0, 0, 0) != 0) luaL_error(outer, "no libraries");
  lua_pushcfunction(inner, note);
  lua_setglobal(inner, "note");
  lua_pushinteger(inner, luaL_checkinteger(outer, 2));
  lua_pushinteger(inner, luaL_checkinteger(outer, 3));
  lua_pushcclosure(inner, arm, 2);
  lua_setglobal(inner, "arm");
}

static void push_field(lua_State *L, const char *key, long number) {
  lua_pushinteger(L, (lua_Integer)number);
  lua_setfield(L, -2, key);
}

static int push_outcome(lua_State *L, const host *self, bool is_over) {
  lua_newtable(L);
  push_field(L, "failed", self->failed);
  push_field(L, "blocks", self->blocks);
  lua_pushboolean(L, !is_over);
  lua_setfield(L, -2, "panicked");
  for (int i = 0; i < self->note_count; i++) {
    lua_pushstring(L, self->notes[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

// run(code, from, to) -> { failed =, blocks = those not freed at the end, panicked =, notes… }
// Runs code in a new state and closes the state. After the code calls arm(), the allocations `from` to `to` fail; from
// 0: none.
static int starved_run(lua_State *L) {
  const char *code = luaL_checkstring(L, 1);
  host *self = lua_newuserdata(L, sizeof *self);
  memset(self, 0, sizeof *self);
  volatile bool is_over = false;
#if LUA_VERSION_NUM >= 505
  lua_State *inner = lua_newstate(allocate, self, 0);
#else
  lua_State *inner = lua_newstate(allocate, self);
#endif
  if (!inner) return luaL_error(L, "no second state");
  lua_atpanic(inner, panic);
  begin(inner, L);
  if (luaL_loadstring(inner, code) != 0) return luaL_error(L, "%s", lua_tostring(inner, -1));
  if (setjmp(self->panicked) == 0) {
    if (lua_pcall(inner, 0, 0, 0) != 0 && self->note_count < NOTES_MOST)
      snprintf(self->notes[self->note_count++], sizeof self->notes[0], "thrown: %s", lua_tostring(inner, -1));
    lua_close(inner);
    is_over = true;
  }
  return push_outcome(L, self, is_over);
}

int luaopen_starved(lua_State *L) {
  static const luaL_Reg functions[] = {{"run", starved_run}, {NULL, NULL}};
  return module(L, functions);
}
