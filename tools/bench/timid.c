/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Mutexes that never claim without a look, for comparison with those of the library. */
#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>

#include "core/acquire/resource.h"
#include "lua/binding.h"

/* timid.never(mutex): `mutex` is the core's object, whose box begins with an al_resource */
static int never(lua_State *L) {
  al_resource **box = luaL_checkudata(L, 1, AL_LUA_RESOURCE);
  (*box)->memory->boldness.needed = UINT64_MAX;
  return 0;
}

int luaopen_timid(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, never);
  lua_setfield(L, -2, "never");
  return 1;
}
