/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The administration of token semaphores: a method of sessions. */
#include <string.h>

#include "lua/binding.h"

typedef al_op *with_permits(al_session *, const char *, int, const al_token_admin_options *);
typedef al_op *without(al_session *, const char *, const al_token_admin_options *);

static const struct action {
  const char *name;
  with_permits *with;
  without *without;
  al_lua_result result;
} actions[] = {{"create", al_token_admin_create, NULL, AL_LUA_COUNT},
               {"add", al_token_admin_add, NULL, AL_LUA_COUNT},
               {"remove", al_token_admin_remove, NULL, AL_LUA_COUNT},
               {"resize", al_token_admin_resize, NULL, AL_LUA_COUNT},
               {"destroy", NULL, al_token_admin_destroy, AL_LUA_TRUE},
               {"repair", NULL, al_token_admin_repair, AL_LUA_COUNT},
               {"slots", NULL, al_token_admin_slots, AL_LUA_PERMITS}};

static const struct action *check_action(lua_State *L, int index) {
  const char *name = luaL_checkstring(L, index);
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return &actions[i];
  luaL_argerror(L, index, "no such action");
  return NULL;
}

static void read_options(lua_State *L, int table, al_token_admin_options *options) {
  al_token_admin_options_init(options);
  if (!lua_istable(L, table)) return;
  options->timeout = al_lua_time_field(L, table, "timeout", options->timeout);
  options->wait = al_lua_time_field(L, table, "wait", 0);
  lua_getfield(L, table, "queue_type");
  options->quorum = lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "quorum") == 0;
  lua_pop(L, 1);
}

/* session:administer_tokens(action, name, options [, permits]) -> operation */
static int administer_tokens(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const struct action *action = check_action(L, 2);
  const char *name = luaL_checkstring(L, 3);
  al_token_admin_options options;
  read_options(L, 4, &options);
  int permits = action->with ? (int)luaL_checknumber(L, 5) : 0;
  al_op **op = al_lua_new_op(L, action->result, 1);
  if (op)
    *op = action->with ? action->with(session, name, permits, &options)
                       : action->without(session, name, &options);
  return al_lua_begun(L, op);
}

void al_lua_open_token_admin(lua_State *L) {
  static const luaL_Reg methods[] = {{"administer_tokens", administer_tokens}, {NULL, NULL}};
  al_lua_add_methods(L, AL_LUA_SESSION, methods);
}
