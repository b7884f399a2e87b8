/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The Lua binding, `amqplocks.core`: thin boxes around what amqplocks.h offers, for the Lua modules on top of it, which
 * check the arguments people give and wait. Every box is made in the same order: empty userdata, metatable, then what
 * can fail; so that an error on the way leaves nothing that __gc would not free. */
#ifndef AL_LUA_BINDING_H
#define AL_LUA_BINDING_H

#include <lauxlib.h>
#include <lua.h>

#include "amqplocks.h"

#define AL_LUA_SESSION "amqplocks.core.session"
#define AL_LUA_SEMAPHORE "amqplocks.core.semaphore"
#define AL_LUA_TOKEN_SEMAPHORE "amqplocks.core.token_semaphore"
#define AL_LUA_MUTEX "amqplocks.core.mutex"
#define AL_LUA_RWLOCK "amqplocks.core.rwlock"
#define AL_LUA_LOCK "amqplocks.core.lock"
#define AL_LUA_OP "amqplocks.core.operation"
#define AL_LUA_SENTINEL "amqplocks.core.sentinel"

/* What a finished operation gives to Lua when it did not fail. */
typedef enum al_lua_result {
  AL_LUA_TRUE,
  AL_LUA_LOCKED,
  AL_LUA_COUNT,
  AL_LUA_SLOTS,
  AL_LUA_PERMITS
} al_lua_result;

/* session.c */
typedef enum al_lua_transport {
  AL_LUA_NATIVE, /* waits in C */
  AL_LUA_LOOP,   /* over bytes, which a loop moves */
  AL_LUA_TOLD    /* over bytes, and told what time it is, for tests */
} al_lua_transport;

typedef struct al_lua_session {
  al_session *session; /* NULL: given back */
  al_lua_transport transport;
} al_lua_session;

al_lua_session *al_lua_check_session(lua_State *L, int index); /* also brings it up to date */
void al_lua_open_session(lua_State *L);

/* settings.c: pushes the settings of a table, one for each host of its URL; the caller wipes them. NULL: nothing is pushed,
 * and `why` says what is wrong with the URL. */
al_settings *al_lua_push_settings(lua_State *L, int table, size_t *count, char why[AL_MESSAGE_SIZE]);
void al_lua_number_field(lua_State *L, int table, const char *key, int *out);
bool al_lua_flag_field(lua_State *L, int table, const char *key);
void al_lua_open_settings(lua_State *L); /* functions of the module */

/* natives.c: native sessions end with their state at the latest. */
void al_lua_own(lua_State *L, al_session *session);
void al_lua_end(al_session *session); /* ends it, and gives it back */
void al_lua_open_natives(lua_State *L);

/* memory.c. What may wait says that there is no memory; what only makes a box for something throws, as Lua does. */
int al_lua_no_memory(lua_State *L);           /* returns nil, message, "no_memory" */
int al_lua_out_of_memory(lua_State *L);       /* throws "not enough memory" */
bool al_lua_try(lua_State *L, int arguments); /* lua_call for one result; false: Lua has no memory for it */
void al_lua_open_memory(lua_State *L);

/* operation.c: pushes an empty box for an operation that the caller begins next, so that nothing can fail in between.
 * The value at `parent` lives as long as the box. NULL: Lua has no memory, and nothing was pushed. */
al_op **al_lua_new_op(lua_State *L, al_lua_result result, int parent);
int al_lua_begun(lua_State *L,
                 al_op *const *op); /* returns the box; or that there is no memory, for it or in it */
al_op *al_lua_check_op(lua_State *L, int index);
void al_lua_open_op(lua_State *L);

/* acquiring.c: what can be acquired, of the session at index 1. An empty box, filled by its caller; an operation, begun with
 * the arguments timeout, fair, priority, poll: without a timeout it waits for ever, with 0 it looks once, times are seconds;
 * and the end. */
typedef al_op *al_lua_begin_acquire(void *resource, const al_acquire_options *options);
void **al_lua_new_resource(lua_State *L, const char *type);
int al_lua_acquire(lua_State *L, const char *type, al_lua_begin_acquire *begin);
int al_lua_drop_resource(lua_State *L, const char *type, void drop(void *));
al_probing al_lua_probing(lua_State *L, int index);

void al_lua_open_semaphore(lua_State *L);       /* semaphore.c */
void al_lua_open_token_semaphore(lua_State *L); /* token_semaphore.c */
void al_lua_open_mutex(lua_State *L);           /* mutex.c */
void al_lua_open_rwlock(lua_State *L);          /* rwlock.c */
void al_lua_open_admin(lua_State *L);           /* admin.c: methods of sessions */
void al_lua_open_token_admin(lua_State *L);     /* token_admin.c: a method of sessions */

/* lock.c: pushes an empty box for a lock of the session at `parent`, filled by its caller. */
al_lock **al_lua_new_lock(lua_State *L, int parent);
void al_lua_open_lock(lua_State *L);

/* ending.c: pushes the address of the function that nginx calls at the end of a request. */
void al_lua_push_note_end(lua_State *L);

/* compat.c: what differs between Lua 5.1, LuaJIT and later ones. */
void *al_lua_new_box(lua_State *L, size_t size, const char *type); /* zeroed, with its metatable set */
void al_lua_keep(lua_State *L, int child, int parent); /* parent lives as long as the userdata child */
void al_lua_kept(lua_State *L, int child);             /* pushes that parent */
void al_lua_new_type(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc);
void al_lua_add_methods(lua_State *L, const char *type, const luaL_Reg *methods);
void al_lua_close_by(lua_State *L, const char *type, lua_CFunction close); /* see guard.lua */

size_t al_lua_length(lua_State *L, int index); /* of a table, as it is */

/* Seconds, as a number that Lua has checked to be finite and not negative, in nanoseconds; nil is `otherwise`. */
int64_t al_lua_time(lua_State *L, int index, int64_t otherwise);
int64_t al_lua_time_field(lua_State *L, int table, const char *key, int64_t otherwise);

#endif
