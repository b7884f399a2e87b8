/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The C module `amqplocks.core`, the Lua binding of amqplocks.h. The Lua modules (lua/amqplocks) use it: they
 * check the arguments of their callers, and they wait. A box is a Lua userdata with a pointer to one object of
 * amqplocks.h: a session, a lock, an operation.
 *
 * Each box is made in the same order: an empty userdata, then its metatable, then the object, whose creation may
 * fail. So an error at any point leaves nothing behind that __gc would not free. */
#ifndef AL_LUA_BINDING_H
#define AL_LUA_BINDING_H

#include <lauxlib.h>
#include <lua.h>

#include "amqplocks.h"

#define AL_LUA_SESSION "amqplocks.core.session"
#define AL_LUA_RESOURCE "amqplocks.core.resource"
#define AL_LUA_LOCK "amqplocks.core.lock"
#define AL_LUA_OP "amqplocks.core.operation"
#define AL_LUA_SENTINEL "amqplocks.core.sentinel"

/* The result in Lua of an operation that did not fail. */
typedef enum al_lua_result {
  AL_LUA_TRUE,
  AL_LUA_LOCKED, /* the lock */
  AL_LUA_LOCKS,  /* a list of locks */
  AL_LUA_COUNT,
  AL_LUA_SLOTS,  /* the state of each slot */
  AL_LUA_PERMITS /* how many permits, how many free, how many held */
} al_lua_result;

/* session.c */
typedef enum al_lua_transport {
  AL_LUA_NATIVE, /* sockets of its own; it waits in C */
  AL_LUA_LOOP,   /* an event loop, in Lua, reads and writes its bytes */
  AL_LUA_TOLD    /* the caller moves its bytes and tells it the time; for tests */
} al_lua_transport;

typedef struct al_lua_session {
  al_session *session; /* NULL: dropped */
  al_lua_transport transport;
} al_lua_session;

/* A native session also handles what has arrived (al_native_touch). */
al_lua_session *al_lua_check_session(lua_State *L, int index);
/* The argument at `index`: the number of alerts that the caller has handled. False: nil, or the session is not native, or it
 * is not quiet since (see session:is_quiet). */
bool al_lua_is_settled(lua_State *L, int index, const al_session *session, al_lua_transport transport,
                       uint64_t *settled);
void al_lua_open_session(lua_State *L);

/* session.c, for the kinds of sessions: pushes a session made by `make` from the table at index 1. NULL: pushes nil, message,
 * code. al_lua_refuse_url() pushes these for a URL. al_lua_check_link() takes "holder", "prober", "fence",
 * "maker" or "quorum". */
typedef al_session *al_lua_make_session(const al_settings *settings, int seed);
al_lua_session *al_lua_new_session(lua_State *L, al_lua_transport transport, al_lua_make_session *make);
int al_lua_refuse_url(lua_State *L, const char *why);
struct al_link *al_lua_check_link(lua_State *L, al_session *session, int index);
void al_lua_open_bytes(lua_State *L); /* bytes.c: adds functions to the module, and methods to sessions */

/* settings.c: pushes a userdata with the settings from a table, one for each host of its URL. The caller
 * overwrites the passwords in it after use. NULL: nothing is pushed, and `why` tells what is wrong with the URL. */
al_settings *al_lua_push_settings(lua_State *L, int table, size_t *count, char why[AL_MESSAGE_SIZE]);
void al_lua_number_field(lua_State *L, int table, const char *key, int *out);
bool al_lua_flag_field(lua_State *L, int table, const char *key);
void al_lua_open_settings(lua_State *L); /* adds functions to the module */

/* natives.c: ends each native session with its Lua state at the latest. */
void al_lua_own(lua_State *L, al_session *session);
void al_lua_end(al_session *session); /* ends and drops the session */
void al_lua_open_natives(lua_State *L);

/* operation.c: pushes an empty box. The caller begins the operation next and stores it there, so that nothing can fail
 * in between. The value at `parent` lives as long as the box. */
al_op **al_lua_new_op(lua_State *L, al_lua_result result, int parent);
/* The results of a function that begins an operation: the box, or nil, message, "no_memory" if it is empty. */
int al_lua_begun(lua_State *L, al_op *const *op);
/* As al_lua_begun(), for an operation of a native session that was begun without a box: waits for it, as session:wait()
 * does. If it has succeeded by then, and the session is quiet (see session:is_quiet), it needs no box: the results are
 * false and its result: true, or a lock if there is an empty box for it, `lock`, on the top. Otherwise it gets the spare
 * box, which al_lua_spare_op() has made before the operation was begun, so that no operation is without one. */
void al_lua_spare_op(lua_State *L);
int al_lua_finish(lua_State *L, al_op *op, int parent, al_lock **lock, uint64_t settled);
/* nil, message, "no_memory": the core has no memory. (Where Lua has none, it raises an error, as elsewhere.) */
int al_lua_no_memory(lua_State *L);
al_op *al_lua_check_op(lua_State *L, int index);
void al_lua_open_op(lua_State *L);

void al_lua_open_resources(lua_State *L); /* resources.c: a method of sessions */
void al_lua_open_admin(lua_State *L);     /* admin.c: methods of sessions */

/* lock.c: pushes an empty box for a lock of the session at `parent`. The caller fills it. */
al_lock **al_lua_new_lock(lua_State *L, int parent);
void al_lua_open_lock(lua_State *L);

/* ending.c: pushes the address of the C function that nginx calls at the end of a request. */
void al_lua_push_note_end(lua_State *L);

/* compat.c: the differences between Lua 5.1, LuaJIT and later versions of Lua. */
void *al_lua_new_box(lua_State *L, size_t size, const char *type); /* zeroed, with its metatable set */
void al_lua_keep(lua_State *L, int child, int parent); /* `parent` lives as long as the userdata `child` */
void al_lua_keep_instead(lua_State *L, int child,
                         int parent);      /* of the parent that it has; takes no memory */
void al_lua_kept(lua_State *L, int child); /* pushes that parent */
void al_lua_new_type(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc);
void al_lua_add_methods(lua_State *L, const char *type, const luaL_Reg *methods);
void al_lua_close_by(lua_State *L, const char *type, lua_CFunction close); /* see guard.lua */

/* an integer of Lua; before Lua 5.3 a number, which has it exactly up to 2^53 */
void al_lua_push_integer(lua_State *L, int64_t integer);
size_t al_lua_length(lua_State *L, int index); /* of a table, without metamethods */

/* Converts seconds to nanoseconds; nil gives `otherwise`. The Lua modules have checked that the number is finite
 * and not negative. */
int64_t al_lua_time(lua_State *L, int index, int64_t otherwise);
int64_t al_lua_time_field(lua_State *L, int table, const char *key, int64_t otherwise);

#endif
