/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The native sessions of a Lua state, none of which outlives it. Each has a box that ends it when it is collected; but Lua
 * 5.1 and LuaJIT forget a finalizer that they have no memory to call. Its session, which nobody can reach any more, would
 * hold its locks for as long as the process lives. So it is ended at the end of the state: what has finalizers ends in the
 * reverse order in which it was made, and this was made before all sessions. */
#include "core/session/session.h"
#include "lua/binding.h"
#include "transport/native.h"

#define TYPE "amqplocks.core.natives"

typedef struct natives {
  al_session *first;
} natives;

static const char key; /* its address is the key in the registry */

static void push(lua_State *L) {
  lua_pushlightuserdata(L, (void *)&key);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

void al_lua_own(lua_State *L, al_session *session) {
  push(L);
  natives *all = lua_touserdata(L, -1);
  lua_pop(L, 1);
  session->next_owned = all->first;
  session->owned_at = &all->first;
  if (all->first) all->first->owned_at = &session->next_owned;
  all->first = session;
}

void al_lua_end(al_session *session) {
  *session->owned_at = session->next_owned;
  if (session->next_owned) session->next_owned->owned_at = session->owned_at;
  al_native_retire(
      session); /* locks and operations may have been forgotten, too, and keep its memory, but no thread */
  al_session_drop(session);
}

static int natives_gc(lua_State *L) {
  natives *all = luaL_checkudata(L, 1, TYPE);
  while (all->first) al_lua_end(all->first);
  return 0;
}

void al_lua_open_natives(lua_State *L) {
  push(L);
  bool is_there = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (is_there) return; /* the module was loaded before */
  al_lua_new_type(L, TYPE, (const luaL_Reg[]){{NULL, NULL}}, natives_gc);
  lua_pushlightuserdata(L, (void *)&key);
  al_lua_new_box(L, sizeof(natives), TYPE);
  lua_rawset(L, LUA_REGISTRYINDEX);
}
