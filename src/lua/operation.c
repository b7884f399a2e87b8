/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Operations under way. Lua code waits for them. When a box is collected or dropped, an operation that is not done
 * is cancelled. */
#include "core/session/op.h"
#include "core/session/session.h"
#include "lua/binding.h"

typedef struct op_box {
  al_op *op; /* NULL: dropped */
  al_lua_result result;
} op_box;

#define PAUSE "pause" /* stored with the type: a Lua function that does nothing */
#define SPARE "spare" /* stored with the type: an empty box */

al_op **al_lua_new_op(lua_State *L, al_lua_result result, int parent) {
  op_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_OP);
  box->result = result;
  al_lua_keep(L, lua_gettop(L), parent);
  return &box->op;
}

int al_lua_no_memory(lua_State *L) {
  const char *code = al_code_name(AL_NO_MEMORY);
  lua_pushnil(L);
  lua_pushfstring(L, "%s: there is not enough memory", code);
  lua_pushstring(L, code);
  return 3;
}

int al_lua_begun(lua_State *L, al_op *const *op) { return *op ? 1 : al_lua_no_memory(L); }

static op_box *check_box(lua_State *L, int index) {
  op_box *box = luaL_checkudata(L, index, AL_LUA_OP);
  luaL_argcheck(L, box->op, index, "the operation was freed");
  return box;
}

al_op *al_lua_check_op(lua_State *L, int index) { return check_box(L, index)->op; }

/* A dropped operation is done, too: where it is a weak key, the garbage collector keeps it in the table for a
 * while after its finalizer. */
static int op_done(lua_State *L) {
  const op_box *box = luaL_checkudata(L, 1, AL_LUA_OP);
  lua_pushboolean(L, !box->op || al_op_done(box->op));
  return 1;
}

/* operation:waiting() -> seconds, reason, while it waits for another client to release; otherwise nothing */
static int op_waiting(lua_State *L) {
  char reason[AL_MESSAGE_SIZE];
  int64_t waited = al_op_waiting(check_box(L, 1)->op, reason);
  if (waited < 0) return 0;
  lua_pushnumber(L, (double)waited / (double)AL_SECOND);
  lua_pushstring(L, reason);
  return 2;
}

/* operation:is_given_back() -> was it dropped? May also be called after the finalizer: weak tables keep such a key
 * for one more cycle of the garbage collector. */
static int op_is_given_back(lua_State *L) {
  lua_pushboolean(L, !((op_box *)luaL_checkudata(L, 1, AL_LUA_OP))->op);
  return 1;
}

/* operation:end_closed(): fails it with `closed`: the connection it belongs to is closed, though the session is
 * not. */
static int op_end_closed(lua_State *L) {
  al_op *op = ((op_box *)luaL_checkudata(L, 1, AL_LUA_OP))->op;
  if (op) al_op_fail(op, AL_CLOSED, "the connection was closed");
  return 0;
}

static void drop(op_box *box) {
  al_op *op = box->op;
  box->op = NULL;
  if (op) al_op_drop(op);
}

static int op_drop(lua_State *L) {
  drop(luaL_checkudata(L, 1, AL_LUA_OP));
  return 0;
}

static int push_slots(lua_State *L, const al_op *op) {
  size_t seen = al_op_seen(op);
  lua_createtable(L, (int)seen, 0);
  for (size_t slot = 1; slot <= seen; slot++) {
    al_slot state = al_op_slot(op, slot);
    lua_createtable(L, 0, 2);
    lua_pushboolean(L, state.exists);
    lua_setfield(L, -2, "exists");
    lua_pushboolean(L, state.held);
    lua_setfield(L, -2, "held");
    lua_rawseti(L, -2, (int)slot);
  }
  return 1;
}

static int push_permits(lua_State *L, const al_op *op) {
  al_permits permits = al_op_permits(op);
  lua_pushinteger(L, (lua_Integer)permits.count);
  lua_pushinteger(L, (lua_Integer)permits.free);
  lua_pushinteger(L, (lua_Integer)permits.held);
  return 3;
}

static int push_lock(lua_State *L, al_op *op, int box) {
  al_lua_kept(L, box);
  al_lock **lock = al_lua_new_lock(L, lua_gettop(L));
  *lock = al_op_lock(op);
  return 1;
}

/* Without memory for a box, the locks that have none yet are released with the operation. */
static int push_locks(lua_State *L, al_op *op, int box) {
  lua_newtable(L);
  int table = lua_gettop(L);
  al_lua_kept(L, box);
  int session = lua_gettop(L);
  for (int i = 1; i <= (int)op->locks_count; i++) {
    al_lock **lock = al_lua_new_lock(L, session);
    *lock = al_op_lock(op);
    lua_rawseti(L, table, i);
  }
  lua_settop(L, table);
  return 1;
}

static int push_result(lua_State *L, const op_box *box, int index) {
  switch (box->result) {
    case AL_LUA_LOCKED:
      return push_lock(L, box->op, index);
    case AL_LUA_LOCKS:
      return push_locks(L, box->op, index);
    case AL_LUA_SLOTS:
      return push_slots(L, box->op);
    case AL_LUA_PERMITS:
      return push_permits(L, box->op);
    case AL_LUA_COUNT:
      lua_pushinteger(L, (lua_Integer)al_op_count(box->op));
      return 1;
    default:
      lua_pushboolean(L, 1);
      return 1;
  }
}

/* operation:result() -> its result | nil, message, code. To be called once, when the operation is done. Specs call it
 * also for an operation that has failed and is not over. */
static int op_result(lua_State *L) {
  const op_box *box = check_box(L, 1);
  luaL_argcheck(L, box->op->done, 1, "the operation is not done");
  if (al_op_code(box->op) == AL_OK) return push_result(L, box, 1);
  lua_pushnil(L);
  lua_pushstring(L, al_op_message(box->op));
  lua_pushstring(L, al_code_name(al_op_code(box->op)));
  return 3;
}

/* ---- waiting at once -------------------------------------------------------------------------------------------- */

/* Debug hooks run between the instructions of Lua functions. A signal that arrives during the wait may have set one, as
 * that for Ctrl-C does, which raises an error. After the wait it would find the operation's result without an owner. */
static void run_hooks(lua_State *L, al_op *op) {
  if (!lua_gethookmask(L)) return;
  luaL_getmetatable(L, AL_LUA_OP);
  lua_getfield(L, -1, PAUSE);
  if (lua_pcall(L, 0, 0, 0) != 0) {
    al_op_drop(op);
    lua_error(L);
  }
  lua_pop(L, 1);
}

/* It keeps no session. */
void al_lua_spare_op(lua_State *L) {
  luaL_getmetatable(L, AL_LUA_OP);
  lua_getfield(L, -1, SPARE);
  if (lua_isnil(L, -1)) {
    lua_pushboolean(L, 1);
    al_lua_new_op(L, AL_LUA_TRUE, lua_gettop(L));
    lua_setfield(L, -4, SPARE);
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
}

/* Pushes the spare box; one more if a debug hook has taken it. */
static op_box *take_spare(lua_State *L, int parent) {
  al_lua_spare_op(L);
  luaL_getmetatable(L, AL_LUA_OP);
  lua_getfield(L, -1, SPARE);
  lua_pushnil(L);
  lua_setfield(L, -3, SPARE);
  lua_remove(L, -2);
  al_lua_keep_instead(L, lua_gettop(L), parent);
  return lua_touserdata(L, -1);
}

int al_lua_finish(lua_State *L, al_op *op, int parent, al_lock **lock, uint64_t settled) {
  if (!op) return al_lua_no_memory(L);
  if (!al_op_done(op)) {
    al_native_wait(op->session, op);
    run_hooks(L, op);
  }
  bool has_succeeded = al_op_done(op) && al_op_code(op) == AL_OK;
  if (!has_succeeded || !al_session_is_quiet(op->session, settled)) {
    *take_spare(L, parent) = (op_box){.op = op, .result = lock ? AL_LUA_LOCKED : AL_LUA_TRUE};
    return 1;
  }
  if (lock) *lock = al_op_lock(op);
  al_op_drop(op);
  if (!lock) lua_pushboolean(L, 1);
  lua_pushboolean(L, 0);
  lua_insert(L, -2);
  return 2;
}

void al_lua_open_op(lua_State *L) {
  static const luaL_Reg methods[] = {{"done", op_done},
                                     {"drop", op_drop},
                                     {"result", op_result},
                                     {"waiting", op_waiting},
                                     {"is_given_back", op_is_given_back},
                                     {"end_closed", op_end_closed},
                                     {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_OP, methods, op_drop);
  al_lua_close_by(L, AL_LUA_OP, op_drop);
  luaL_getmetatable(L, AL_LUA_OP);
  luaL_loadbuffer(L, "", 0, "=amqplocks.pause");
  lua_setfield(L, -2, PAUSE);
  lua_pop(L, 1);
}
