/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration of semaphores: methods of sessions. */
#include <string.h>

#include "lua/binding.h"

typedef al_op *with_slots(al_session *, const char *, int, const al_admin_options *);
typedef al_op *without(al_session *, const char *, const al_admin_options *);

static const struct action {
  const char *name;
  with_slots *with;
  without *without;
  al_lua_result result;
} actions[] = {
    {"create", al_admin_create, NULL, AL_LUA_COUNT},  {"add", al_admin_add, NULL, AL_LUA_COUNT},
    {"remove", al_admin_remove, NULL, AL_LUA_COUNT},  {"resize", al_admin_resize, NULL, AL_LUA_COUNT},
    {"destroy", NULL, al_admin_destroy, AL_LUA_TRUE}, {"repair", NULL, al_admin_repair, AL_LUA_COUNT},
    {"slots", NULL, al_admin_slots, AL_LUA_COUNT},    {"status", NULL, al_admin_status, AL_LUA_SLOTS}};

static const struct action *check_action(lua_State *L, int index) {
  const char *name = luaL_checkstring(L, index);
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return &actions[i];
  luaL_argerror(L, index, "no such action");
  return NULL;
}

static void read_options(lua_State *L, int table, al_admin_options *options) {
  al_admin_options_init(options);
  if (!lua_istable(L, table)) return;
  options->timeout = al_lua_time_field(L, table, "timeout", options->timeout);
  options->wait = al_lua_time_field(L, table, "wait", 0);
  lua_getfield(L, table, "overshoot");
  if (!lua_isnil(L, -1)) options->overshoot = (int)luaL_checknumber(L, -1);
  lua_getfield(L, table, "ascending");
  options->ascending = lua_toboolean(L, -1);
  lua_getfield(L, table, "queue_type");
  options->quorum = lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "quorum") == 0;
  lua_getfield(L, table, "revoke");
  options->revoke = lua_toboolean(L, -1);
  lua_pop(L, 4);
}

/* session:forget_fence("mutex" | "rwlock" | "semaphore", name) -> operation */
static int forget_fence(lua_State *L) {
  static const char *const kinds[] = {"mutex", "rwlock", "semaphore", NULL};
  static al_op *(*const forgets[])(al_session *, const char *) = {
      al_mutex_forget_fence, al_rwlock_forget_fence, al_admin_forget_fence};
  al_session *session = al_lua_check_session(L, 1)->session;
  int kind = luaL_checkoption(L, 2, NULL, kinds);
  const char *name = luaL_checkstring(L, 3);
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  if (op) *op = forgets[kind](session, name);
  return al_lua_begun(L, op);
}

/* session:mend_fence(name): of a semaphore -> operation */
static int mend_fence(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  if (op) *op = al_admin_mend_fence(session, name);
  return al_lua_begun(L, op);
}

/* session:administer(action, name, options [, slots]) -> operation */
static int administer(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const struct action *action = check_action(L, 2);
  const char *name = luaL_checkstring(L, 3);
  al_admin_options options;
  read_options(L, 4, &options);
  int slots = action->with ? (int)luaL_checknumber(L, 5) : 0;
  al_op **op = al_lua_new_op(L, action->result, 1);
  if (op)
    *op = action->with ? action->with(session, name, slots, &options)
                       : action->without(session, name, &options);
  return al_lua_begun(L, op);
}

/* session:wait_released(name, options, slots) -> operation */
static int wait_released(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_admin_options options;
  read_options(L, 3, &options);
  luaL_checktype(L, 4, LUA_TTABLE);
#if LUA_VERSION_NUM == 501
  size_t count = lua_objlen(L, 4);
#else
  size_t count = lua_rawlen(L, 4);
#endif
  int *slots = lua_newuserdata(L, (count + 1) * sizeof *slots); /* Lua frees it, also after an error */
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, 4, (int)i + 1);
    slots[i] = (int)luaL_checknumber(L, -1);
    lua_pop(L, 1);
  }
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  if (op) *op = al_admin_wait_released(session, name, slots, count, &options);
  return al_lua_begun(L, op);
}

/* session:revoke(name, options, slot) -> operation */
static int revoke(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_admin_options options;
  read_options(L, 3, &options);
  int slot = (int)luaL_checknumber(L, 4);
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  if (op) *op = al_admin_revoke(session, name, slot, &options);
  return al_lua_begun(L, op);
}

/* session:revoke_lock("mutex" | "readers" | "writer", name, options) -> operation */
static int revoke_lock(lua_State *L) {
  static const char *const kinds[] = {"mutex", "readers", "writer", NULL};
  static al_op *(*const revokes[])(al_session *, const char *, const al_admin_options *) = {
      al_mutex_revoke, al_rwlock_revoke_readers, al_rwlock_revoke_writer};
  al_session *session = al_lua_check_session(L, 1)->session;
  int kind = luaL_checkoption(L, 2, NULL, kinds);
  const char *name = luaL_checkstring(L, 3);
  al_admin_options options;
  read_options(L, 4, &options);
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  if (op) *op = revokes[kind](session, name, &options);
  return al_lua_begun(L, op);
}

void al_lua_open_admin(lua_State *L) {
  static const luaL_Reg methods[] = {{"administer", administer},
                                     {"forget_fence", forget_fence},
                                     {"mend_fence", mend_fence},
                                     {"wait_released", wait_released},
                                     {"revoke", revoke},
                                     {"revoke_lock", revoke_lock},
                                     {NULL, NULL}};
  al_lua_add_methods(L, AL_LUA_SESSION, methods);
}
