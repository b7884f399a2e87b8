/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Locks that were acquired. */
#include <string.h>

#include "core/hold/lock.h"
#include "core/session/session.h"
#include "lua/binding.h"
#include "transport/native.h"
#include "transport/system.h"

typedef struct lock_box {
  al_lock *lock; /* NULL: dropped */
  al_lua_transport transport;
} lock_box;

al_lock **al_lua_new_lock(lua_State *L, int parent) {
  lock_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_LOCK);
  box->transport = ((al_lua_session *)lua_touserdata(L, parent))->transport;
  al_lua_keep(L, lua_gettop(L), parent);
  return &box->lock;
}

static lock_box *check_box(lua_State *L) {
  lock_box *box = luaL_checkudata(L, 1, AL_LUA_LOCK);
  luaL_argcheck(L, box->lock, 1, "the lock was freed");
  return box;
}

static const char *why(const al_lock *lock, al_code code) {
  switch (code) {
    case AL_LOST:
      return al_lock_reason(lock);
    case AL_SUSPECT:
      return "the broker has not answered for two heartbeats, and may have released the lock";
    case AL_NOT_HELD:
      return "it was released before";
    default:
      return "this process is a child of the one that holds it";
  }
}

static void push_why_not(lua_State *L, const al_lock *lock, al_code code) {
  char words[AL_LOCK_WORDS];
  al_lock_words(lock, words);
  lua_pushfstring(L, "%s: %s: %s", al_code_name(code), words, why(lock, code));
}

/* lock:held() -> true | false, message, code. No I/O. */
static int lock_held(lua_State *L) {
  lock_box *box = check_box(L);
  al_lock *lock = box->lock;
  bool is_told = box->transport == AL_LUA_TOLD;
  al_code code = al_lock_held(lock, is_told ? lock->session->now : al_system_now());
  lua_pushboolean(L, code == AL_OK);
  if (code == AL_OK) return 1;
  push_why_not(L, lock, code);
  lua_pushstring(L, al_code_name(code));
  return 3;
}

/* lock:loss() -> for a lock that was lost while its owner held it: the message that lock:held() gives, or gave
 * before the release. Nothing for any other lock. No I/O. */
static int lock_loss(lua_State *L) {
  const al_lock *lock = check_box(L)->lock;
  if (!al_lock_was_lost(lock)) return 0;
  push_why_not(L, lock, AL_LOST);
  return 1;
}

/* lock:revoked() -> boolean. No I/O. */
static int lock_revoked(lua_State *L) {
  lua_pushboolean(L, al_lock_revoked(check_box(L)->lock));
  return 1;
}

/* lock:certain_for() -> seconds, 0 if the lock is not certain to be held. No I/O. */
static int lock_certain_for(lua_State *L) {
  lock_box *box = check_box(L);
  bool is_told = box->transport == AL_LUA_TOLD;
  int64_t left = al_lock_certain_until(box->lock) - (is_told ? box->lock->session->now : al_system_now());
  lua_pushnumber(L, left > 0 ? (lua_Number)left / (lua_Number)AL_SECOND : 0);
  return 1;
}

static void push_fence(lua_State *L, const al_lock *lock) {
  int64_t fence = al_lock_fence(lock);
  if (fence == 0)
    lua_pushnil(L);
  else
    al_lua_push_integer(L, fence);
}

static void push_permit(lua_State *L, const al_lock *lock) {
  const char *permit = al_lock_permit(lock);
  if (permit[0])
    lua_pushstring(L, permit);
  else
    lua_pushnil(L);
}

/* lock:fence() -> its fencing token, an integer where Lua has them; nil: it has none */
static int lock_fence(lua_State *L) {
  push_fence(L, check_box(L)->lock);
  return 1;
}

/* lock:permit() -> the id of the permit whose holders its fencing token counts; nil: it is no permit, or has no token */
static int lock_permit(lua_State *L) {
  push_permit(L, check_box(L)->lock);
  return 1;
}

/* core.lock_order(kind, name) -> the text by which locks are ordered (al_lock_order) */
static int lock_order(lua_State *L) {
  char out[AL_NAME_SIZE];
  int kind = al_kind_named(luaL_checkstring(L, 1));
  luaL_argcheck(L, kind >= 0, 1, "there is no such kind of lock");
  al_lock_order((al_lock_kind)kind, luaL_checkstring(L, 2), out);
  lua_pushstring(L, out);
  return 1;
}

/* core.compare(a, b) -> below, at or above 0, by the bytes of two texts. Lua's `<` asks the locale. */
static int compare(lua_State *L) {
  lua_pushinteger(L, strcmp(luaL_checkstring(L, 1), luaL_checkstring(L, 2)));
  return 1;
}

/* lock:info() -> slot or nil, name, ticket, acquired_at, kind, fence, permit */
static int lock_info(lua_State *L) {
  al_lock *lock = check_box(L)->lock;
  if (al_lock_slot(lock) > 0)
    lua_pushinteger(L, al_lock_slot(lock));
  else
    lua_pushnil(L);
  lua_pushstring(L, al_lock_name(lock));
  lua_pushstring(L, al_lock_ticket(lock));
  lua_pushnumber(L, al_lock_acquired_at(lock));
  lua_pushstring(L, al_kind_name(al_lock_kind_of(lock)));
  push_fence(L, lock);
  push_permit(L, lock);
  return 7;
}

static lock_box *check_fresh(lua_State *L) {
  lock_box *box = check_box(L);
  if (box->transport == AL_LUA_NATIVE)
    al_native_touch(
        box->lock->session); /* a loss that arrived a millisecond ago is handled before anything is sent */
  return box;
}

/* lock:verify() -> operation; likewise lock:release() and lock:downgrade() */
static int lock_verify(lua_State *L) {
  al_lock *lock = check_fresh(L)->lock;
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_lock_verify(lock);
  return al_lua_begun(L, op);
}

/* lock:release([settled]) -> operation | false, true: see al_lua_finish() */
static int lock_release(lua_State *L) {
  const lock_box *box = check_fresh(L);
  al_lock *lock = box->lock;
  uint64_t settled;
  if (al_lua_is_settled(L, 2, lock->session, box->transport, &settled)) {
    al_lua_spare_op(L);
    return al_lua_finish(L, al_lock_release(lock), 1, NULL, settled);
  }
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_lock_release(lock);
  return al_lua_begun(L, op);
}

/* lock:give_back() -> operation: see al_lock_give_back() */
static int lock_give_back(lua_State *L) {
  al_lock *lock = check_fresh(L)->lock;
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_lock_give_back(lock);
  return al_lua_begun(L, op);
}

/* lock:let_go(): releases the lock without waiting. */
static int lock_let_go(lua_State *L) {
  al_lock_let_go(check_fresh(L)->lock);
  return 0;
}

static int lock_downgrade(lua_State *L) {
  al_lock *lock = check_fresh(L)->lock;
  al_lock_kind kind = al_lock_kind_of(lock);
  luaL_argcheck(L, kind == AL_LOCK_READ || kind == AL_LOCK_WRITE, 1, "not a lock that writes");
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_lock_downgrade(lock);
  return al_lua_begun(L, op);
}

static int lock_gc(lua_State *L) {
  lock_box *box = luaL_checkudata(L, 1, AL_LUA_LOCK);
  al_lock *lock = box->lock;
  box->lock = NULL;
  al_lock_drop(lock);
  return 0;
}

void al_lua_open_lock(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"held", lock_held},       {"loss", lock_loss},
      {"revoked", lock_revoked}, {"certain_for", lock_certain_for},
      {"info", lock_info},       {"fence", lock_fence},
      {"permit", lock_permit},   {"verify", lock_verify},
      {"release", lock_release}, {"give_back", lock_give_back},
      {"let_go", lock_let_go},   {"downgrade", lock_downgrade},
      {"drop", lock_gc},         {NULL, NULL},
  };
  al_lua_new_type(L, AL_LUA_LOCK, methods, lock_gc);
  lua_pushcfunction(L, lock_order);
  lua_setfield(L, -2, "lock_order");
  lua_pushcfunction(L, compare);
  lua_setfield(L, -2, "compare");
}
