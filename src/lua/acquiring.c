/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The common part of all resources that can be acquired: a box with one pointer in it, whose parent is the
 * session. */
#include "lua/binding.h"

void **al_lua_new_resource(lua_State *L, const char *type) {
  void **box = al_lua_new_box(L, sizeof *box, type);
  al_lua_keep(L, lua_gettop(L), 1);
  return box;
}

static al_acquire_options read_options(lua_State *L, int first) {
  al_acquire_options options;
  al_acquire_options_init(&options);
  options.timeout = al_lua_time(L, first, options.timeout);
  options.fair = lua_toboolean(L, first + 1);
  options.priority = (int)luaL_optnumber(L, first + 2, 0);
  options.poll = al_lua_time(L, first + 3, options.poll);
  options.patient = lua_toboolean(L, first + 4);
  options.count = (int)luaL_optnumber(L, first + 6, 1);
  return options;
}

int al_lua_acquire(lua_State *L, const char *type, al_lua_begin_acquire *begin) {
  void **box = luaL_checkudata(L, 1, type);
  luaL_argcheck(L, *box, 1, "it was freed");
  al_acquire_options options = read_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  const al_lua_session *owner = al_lua_check_session(L, session);
  uint64_t settled;
  al_lua_result result = options.count > 1 ? AL_LUA_LOCKS : AL_LUA_LOCKED;
  if (result == AL_LUA_LOCKED && al_lua_is_settled(L, 7, owner->session, owner->transport, &settled))
    return al_lua_finish(L, begin(*box, &options), AL_LUA_LOCKED, session, settled);
  al_op **op = al_lua_new_op(L, result, session);
  if (op) *op = begin(*box, &options);
  return al_lua_begun(L, op);
}

int al_lua_drop_resource(lua_State *L, const char *type, void drop(void *)) {
  void **box = luaL_checkudata(L, 1, type);
  void *resource = *box;
  *box = NULL;
  if (resource) drop(resource);
  return 0;
}

al_probing al_lua_probing(lua_State *L, int index) {
  static const char *const probings[] = {"auto", "publish", "passive", NULL};
  return (al_probing)luaL_checkoption(L, index, NULL, probings);
}
