/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration of locks: methods of sessions. */
#include <string.h>

#include "lua/binding.h"

/* An action takes a number of slots or permits, or none. `slots` is for semaphores, `permits` for token semaphores. */
static const struct action {
  const char *name;
  struct {
    al_op *(*with)(al_session *, const char *, int, const al_admin_options *);
    al_op *(*without)(al_session *, const char *, const al_admin_options *);
    al_lua_result result;
  } slots;
  struct {
    al_op *(*with)(al_session *, const char *, int, const al_token_admin_options *);
    al_op *(*without)(al_session *, const char *, const al_token_admin_options *);
    al_lua_result result;
  } permits;
} actions[] = {
    {"create", {al_admin_create, NULL, AL_LUA_COUNT}, {al_token_admin_create, NULL, AL_LUA_COUNT}},
    {"add", {al_admin_add, NULL, AL_LUA_COUNT}, {al_token_admin_add, NULL, AL_LUA_COUNT}},
    {"remove", {al_admin_remove, NULL, AL_LUA_COUNT}, {al_token_admin_remove, NULL, AL_LUA_COUNT}},
    {"resize", {al_admin_resize, NULL, AL_LUA_COUNT}, {al_token_admin_resize, NULL, AL_LUA_COUNT}},
    {"destroy", {NULL, al_admin_destroy, AL_LUA_TRUE}, {NULL, al_token_admin_destroy, AL_LUA_TRUE}},
    {"repair", {NULL, al_admin_repair, AL_LUA_COUNT}, {NULL, al_token_admin_repair, AL_LUA_COUNT}},
    {"slots", {NULL, al_admin_slots, AL_LUA_COUNT}, {NULL, al_token_admin_slots, AL_LUA_PERMITS}},
    {"status", {NULL, al_admin_status, AL_LUA_SLOTS}, {NULL, NULL, AL_LUA_TRUE}}};

static const struct action *check_action(lua_State *L, int index) {
  const char *name = luaL_checkstring(L, index);
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return &actions[i];
  luaL_argerror(L, index, "no such action");
  return NULL;
}

static bool is_quorum(lua_State *L, int table) {
  lua_getfield(L, table, "queue_type");
  bool is_it = lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "quorum") == 0;
  lua_pop(L, 1);
  return is_it;
}

static void read_options(lua_State *L, int table, al_admin_options *options) {
  al_admin_options_init(options);
  if (!lua_istable(L, table)) return;
  options->timeout = al_lua_time_field(L, table, "timeout", options->timeout);
  options->wait = al_lua_time_field(L, table, "wait", 0);
  al_lua_number_field(L, table, "overshoot", &options->overshoot);
  options->ascending = al_lua_flag_field(L, table, "ascending");
  options->quorum = is_quorum(L, table);
  options->revoke = al_lua_flag_field(L, table, "revoke");
  options->fenced = al_lua_flag_field(L, table, "fenced");
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
  *op = forgets[kind](session, name);
  return al_lua_begun(L, op);
}

/* session:administer(action, name, options [, slots]) -> operation */
static int administer(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const struct action *action = check_action(L, 2);
  const char *name = luaL_checkstring(L, 3);
  al_admin_options options;
  read_options(L, 4, &options);
  int slots = action->slots.with ? (int)luaL_checknumber(L, 5) : 0;
  al_op **op = al_lua_new_op(L, action->slots.result, 1);
  *op = action->slots.with ? action->slots.with(session, name, slots, &options)
                           : action->slots.without(session, name, &options);
  return al_lua_begun(L, op);
}

/* session:administer_tokens(action, name, options [, permits]) -> operation */
static int administer_tokens(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const struct action *action = check_action(L, 2);
  const char *name = luaL_checkstring(L, 3);
  luaL_checktype(L, 4, LUA_TTABLE);
  al_token_admin_options options;
  al_token_admin_options_init(&options);
  options.timeout = al_lua_time_field(L, 4, "timeout", options.timeout);
  options.wait = al_lua_time_field(L, 4, "wait", 0);
  options.quorum = is_quorum(L, 4);
  luaL_argcheck(L, action->permits.with || action->permits.without, 2, "no such action");
  int permits = action->permits.with ? (int)luaL_checknumber(L, 5) : 0;
  al_op **op = al_lua_new_op(L, action->permits.result, 1);
  *op = action->permits.with ? action->permits.with(session, name, permits, &options)
                             : action->permits.without(session, name, &options);
  return al_lua_begun(L, op);
}

/* session:wait_released(name, options, slots) -> operation */
static int wait_released(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const char *name = luaL_checkstring(L, 2);
  al_admin_options options;
  read_options(L, 3, &options);
  luaL_checktype(L, 4, LUA_TTABLE);
  size_t count = al_lua_length(L, 4);
  int *slots = lua_newuserdata(L, (count + 1) * sizeof *slots); /* Lua frees it, also after an error */
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, 4, (int)i + 1);
    slots[i] = (int)luaL_checknumber(L, -1);
    lua_pop(L, 1);
  }
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_admin_wait_released(session, name, slots, count, &options);
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
  *op = al_admin_revoke(session, name, slot, &options);
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
  *op = revokes[kind](session, name, &options);
  return al_lua_begun(L, op);
}

void al_lua_open_admin(lua_State *L) {
  static const luaL_Reg methods[] = {{"administer", administer},
                                     {"administer_tokens", administer_tokens},
                                     {"forget_fence", forget_fence},
                                     {"wait_released", wait_released},
                                     {"revoke", revoke},
                                     {"revoke_lock", revoke_lock},
                                     {NULL, NULL}};
  al_lua_add_methods(L, AL_LUA_SESSION, methods);
}
