/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The list of the native sessions of a Lua state. No native session outlives its Lua state. The box of a session
 * ends the session when the box is collected. But Lua 5.1 and LuaJIT skip a finalizer if they have no memory to
 * call it. Then no code could reach the session any more, and it would hold its locks until the process ends. So
 * this list ends all sessions that are left when the Lua state is closed. Lua calls finalizers in the reverse
 * order of creation, and the list is created before all sessions. */
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
  /* Locks and operations whose finalizers were skipped too may keep the session's memory, but must keep no thread. */
  al_native_retire(session);
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
