/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * require "amqplocks.core" */
#include "core/base/text.h"
#include "lua/binding.h"

/* core.text_error(text) -> nil if the broker's tools can show the text, otherwise what is wrong with it. */
static int text_error(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  lua_pushstring(L, al_text_wrong(text, length)); /* nil for NULL */
  return 1;
}

/* core.name_error(name) -> nil if a lock may have that name, otherwise what is wrong with it. */
static int name_error(lua_State *L) {
  size_t length;
  char why[AL_MESSAGE_SIZE];
  const char *name = luaL_checklstring(L, 1, &length);
  if (al_name_check(name, length, why)) return 0;
  lua_pushstring(L, why);
  return 1;
}

#if LUA_VERSION_NUM == 501
int lua_isyieldable(lua_State *L) __attribute__((weak)); /* LuaJIT has it, Lua 5.1 has not */
#endif

/* core.can_yield() -> can its caller yield? Not in the main program, and not inside a C function that calls Lua. */
static int can_yield(lua_State *L) {
  lua_pushboolean(L, lua_isyieldable(L));
  return 1;
}

static void set_can_yield(lua_State *L) {
#if LUA_VERSION_NUM == 501
  if (!lua_isyieldable) return;
#endif
  lua_pushcfunction(L, can_yield);
  lua_setfield(L, -2, "can_yield");
}

/* core.on_collect(fn) -> an object. fn() is called when the object is collected. It must not wait, and its errors
 * are dropped. */
static int on_collect(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  al_lua_new_box(L, 1, AL_LUA_SENTINEL);
  al_lua_keep(L, lua_gettop(L), 1);
  return 1;
}

static int sentinel_gc(lua_State *L) {
  al_lua_kept(L, 1);
  if (lua_isfunction(L, -1)) lua_pcall(L, 0, 0, 0);
  return 0;
}

__attribute__((visibility("default"))) int luaopen_amqplocks_core(lua_State *L);

int luaopen_amqplocks_core(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, text_error);
  lua_setfield(L, -2, "text_error");
  lua_pushcfunction(L, name_error);
  lua_setfield(L, -2, "name_error");
  lua_pushcfunction(L, on_collect);
  lua_setfield(L, -2, "on_collect");
  set_can_yield(L);
  lua_pushstring(L, al_version());
  lua_setfield(L, -2, "version");
  lua_pushinteger(L, AL_SLOTS_MAX);
  lua_setfield(L, -2, "slots_max");
  al_lua_push_note_end(L);
  lua_setfield(L, -2, "note_end");
  al_lua_new_type(L, AL_LUA_SENTINEL, (const luaL_Reg[]){{NULL, NULL}}, sentinel_gc);
  al_lua_open_natives(L);
  al_lua_open_settings(L);
  al_lua_open_session(L);
  al_lua_open_bytes(L);
  al_lua_open_op(L);
  al_lua_open_lock(L);
  al_lua_open_resources(L);
  al_lua_open_admin(L);
  return 1;
}
