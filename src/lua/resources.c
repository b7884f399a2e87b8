/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What can be acquired: semaphores, token semaphores, mutexes, fast mutexes and readers–writer locks. A box has one of
 * them; its parent is the session. Their administration is in admin.c. */
#include <string.h>

#include "lua/binding.h"

typedef al_op *begin_acquire(void *resource, const al_acquire_options *options);

/* A kind of resource. `make` reads the options from a table. `read` and `write` instead of `acquire` if it has two
 * sides. */
typedef struct resource_kind {
  void *(*make)(lua_State *L, al_session *session, const char *name, int table);
  void (*drop)(void *resource);
  begin_acquire *acquire, *read, *write;
} resource_kind;

typedef struct resource_box {
  void *resource; /* NULL: dropped */
  const resource_kind *kind;
} resource_box;

/* ---- the kinds -------------------------------------------------------------------------------------------------- */

/* The option `key`, as the number of one of the words; 0, the first one, if it is not there. */
static int word_field(lua_State *L, int table, const char *key, const char *const words[]) {
  lua_getfield(L, table, key);
  int number = luaL_checkoption(L, -1, words[0], words);
  lua_pop(L, 1);
  return number;
}

static al_lock_options lock_options(lua_State *L, int table) {
  static const char *const probings[] = {"auto", "publish", "passive", NULL};
  al_lock_options options = {.probing = (al_probing)word_field(L, table, "probe", probings),
                             .fenced = al_lua_flag_field(L, table, "fenced")};
  al_lua_number_field(L, table, "max_attempts", &options.max_attempts);
  return options;
}

static void *make_semaphore(lua_State *L, al_session *session, const char *name, int table) {
  static const char *const strategies[] = {"ascending", "random", "last", NULL};
  al_lock_options lock = lock_options(L, table);
  al_semaphore_options options = {.strategy = (al_strategy)word_field(L, table, "strategy", strategies),
                                  .max_attempts = lock.max_attempts,
                                  .probing = lock.probing,
                                  .silent = al_lua_flag_field(L, table, "silent"),
                                  .fenced = lock.fenced};
  al_lua_number_field(L, table, "most", &options.most);
  return al_semaphore_new(session, name, &options);
}

static bool is_quorum(lua_State *L, int table) {
  static const char *const types[] = {"classic", "quorum", NULL};
  return word_field(L, table, "queue_type", types) == 1;
}

static void *make_token_semaphore(lua_State *L, al_session *session, const char *name, int table) {
  al_token_semaphore_options options = {.quorum = is_quorum(L, table),
                                        .fenced = al_lua_flag_field(L, table, "fenced")};
  return al_token_semaphore_new(session, name, &options);
}

static void *make_mutex(lua_State *L, al_session *session, const char *name, int table) {
  al_lock_options options = lock_options(L, table);
  options.retain = al_lua_time_field(L, table, "retain", 0);
  return al_mutex_new(session, name, &options);
}

static void *make_fast_mutex(lua_State *L, al_session *session, const char *name, int table) {
  return is_quorum(L, table) ? al_quorum_mutex_new(session, name) : al_fast_mutex_new(session, name);
}

static void *make_rwlock(lua_State *L, al_session *session, const char *name, int table) {
  al_lock_options options = lock_options(L, table);
  return al_rwlock_new(session, name, &options);
}

#define BEGIN(function)                                                                                      \
  static al_op *function##_it(void *resource, const al_acquire_options *options) {                           \
    return al_##function(resource, options);                                                                 \
  }
BEGIN(semaphore_acquire)
BEGIN(token_semaphore_acquire)
BEGIN(mutex_acquire)
BEGIN(fast_mutex_acquire)
BEGIN(rwlock_read)
BEGIN(rwlock_write)

static void drop_semaphore(void *semaphore) { al_semaphore_drop(semaphore); }
static void drop_token_semaphore(void *semaphore) { al_token_semaphore_drop(semaphore); }
static void drop_mutex(void *mutex) { al_mutex_drop(mutex); }
static void drop_fast_mutex(void *mutex) { al_fast_mutex_drop(mutex); }
static void drop_rwlock(void *rwlock) { al_rwlock_drop(rwlock); }

static const char *const kind_names[] = {"semaphore",  "token_semaphore", "mutex",
                                         "fast_mutex", "rwlock",          NULL};
static const resource_kind kinds[] = {
    {make_semaphore, drop_semaphore, .acquire = semaphore_acquire_it},
    {make_token_semaphore, drop_token_semaphore, .acquire = token_semaphore_acquire_it},
    {make_mutex, drop_mutex, .acquire = mutex_acquire_it},
    {make_fast_mutex, drop_fast_mutex, .acquire = fast_mutex_acquire_it},
    {make_rwlock, drop_rwlock, .read = rwlock_read_it, .write = rwlock_write_it}};

/* ---- a resource ------------------------------------------------------------------------------------------------- */

/* session:resource(kind, name, options) -> resource. Options, all of which may be missing: strategy, max_attempts, probe,
 * fenced, queue_type, as in the public functions; most: the highest slot; silent: without a doorbell. */
static int session_resource(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  const resource_kind *kind = &kinds[luaL_checkoption(L, 2, NULL, kind_names)];
  const char *name = luaL_checkstring(L, 3);
  luaL_checktype(L, 4, LUA_TTABLE);
  resource_box *box = al_lua_new_box(L, sizeof *box, AL_LUA_RESOURCE);
  al_lua_keep(L, lua_gettop(L), 1);
  box->kind = kind;
  box->resource = kind->make(L, session, name, 4);
  if (box->resource) return 1;
  lua_pushliteral(L, "not enough memory"); /* as Lua says it */
  return lua_error(L);
}

static resource_box *check_box(lua_State *L) {
  resource_box *box = luaL_checkudata(L, 1, AL_LUA_RESOURCE);
  luaL_argcheck(L, box->resource, 1, "it was freed");
  return box;
}

/* Most tables have one option or none: reads those that are there. */
static al_acquire_options acquire_options(lua_State *L, int table) {
  static const char *const names[] = {"timeout", "fair",    "priority", "poll",  "patient",
                                      "count",   "at_most", "revoke",   "settle"};
  al_acquire_options options;
  al_acquire_options_init(&options);
  options.count = 1;
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    size_t option = 0;
    while (option < sizeof names / sizeof *names && strcmp(key, names[option]) != 0) option++;
    if (option == 0) options.timeout = al_lua_time(L, -1, options.timeout);
    if (option == 1) options.fair = lua_toboolean(L, -1);
    if (option == 2) options.priority = (int)luaL_checknumber(L, -1);
    if (option == 3) options.poll = al_lua_time(L, -1, options.poll);
    if (option == 4) options.patient = lua_toboolean(L, -1);
    if (option == 5) options.count = (int)luaL_checknumber(L, -1);
    if (option == 6) options.at_most = al_lua_time(L, -1, options.at_most);
    if (option == 7) options.revoke = lua_toboolean(L, -1);
    if (option == 8) options.settle = al_lua_time(L, -1, options.settle);
  }
  return options;
}

static int acquire(lua_State *L, const resource_box *box, begin_acquire *begin) {
  luaL_argcheck(L, begin, 1, "a resource of another kind has this method");
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 3);
  al_acquire_options options = acquire_options(L, 2);
  al_lua_kept(L, 1);
  int session = lua_gettop(L);
  const al_lua_session *owner = al_lua_check_session(L, session);
  uint64_t settled;
  if (options.count == 1 && al_lua_is_settled(L, 3, owner->session, owner->transport, &settled)) {
    al_lua_spare_op(L);
    al_lock **lock = al_lua_new_lock(L, session); /* before there is a lock that needs a box */
    return al_lua_finish(L, begin(box->resource, &options), session, lock, settled);
  }
  al_op **op = al_lua_new_op(L, options.count > 1 ? AL_LUA_LOCKS : AL_LUA_LOCKED, session);
  *op = begin(box->resource, &options);
  return al_lua_begun(L, op);
}

/* resource:acquire(options [, settled]) -> operation; likewise resource:read and resource:write. Options, all of which
 * may be missing: timeout, fair, priority, poll, patient, count, at_most, revoke, settle, as in the public functions.
 * Without a timeout the operation waits without limit; with timeout 0 it tries once. */
static int resource_acquire(lua_State *L) {
  const resource_box *box = check_box(L);
  return acquire(L, box, box->kind->acquire);
}

static int resource_read(lua_State *L) {
  const resource_box *box = check_box(L);
  return acquire(L, box, box->kind->read);
}

static int resource_write(lua_State *L) {
  const resource_box *box = check_box(L);
  return acquire(L, box, box->kind->write);
}

static int resource_gc(lua_State *L) {
  resource_box *box = luaL_checkudata(L, 1, AL_LUA_RESOURCE);
  void *resource = box->resource;
  box->resource = NULL;
  if (resource) box->kind->drop(resource);
  return 0;
}

void al_lua_open_resources(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"acquire", resource_acquire}, {"read", resource_read}, {"write", resource_write}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"resource", session_resource}, {NULL, NULL}};
  al_lua_new_type(L, AL_LUA_RESOURCE, methods, resource_gc);
  al_lua_add_methods(L, AL_LUA_SESSION, of_session);
}
