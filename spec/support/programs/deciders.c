// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built and loaded by spec/support/deciders.lua: functions of the core that only compute, one to one.
//
// A time is a number of nanoseconds, or a string of digits where a number of Lua 5.1 would not be exact. math.huge is
// AL_NEVER.

#include "module.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/acquire/pacing.h"
#include "core/admin/slot_plan.h"
#include "core/base/ids.h"
#include "core/base/name.h"
#include "core/base/random.h"
#include "core/session/op.h"
#include "core/tokens/token_plan.h"
#include "core/wire/nodes.h"

#define EXACT (INT64_C(1) << 53)

// ---- fields of tables -----------------------------------------------------------------------------------------------

static int64_t to_time(lua_State *L, int index) {
  if (lua_type(L, index) == LUA_TSTRING) return strtoll(lua_tostring(L, index), NULL, 10);
  lua_Number number = luaL_checknumber(L, index);
  return number == HUGE_VAL ? AL_NEVER : (int64_t)number;
}

static void push_time(lua_State *L, int64_t time) {
  char digits[32];
  snprintf(digits, sizeof digits, "%" PRId64, time);
  if (time == AL_NEVER)
    lua_pushnumber(L, HUGE_VAL);
  else if (time > EXACT || time < -EXACT)
    lua_pushstring(L, digits);
  else
    lua_pushinteger(L, (lua_Integer)time);
}

// A field that is absent is 0.
static int64_t get(lua_State *L, int table, const char *field) {
  lua_getfield(L, table, field);
  int64_t value = lua_isnumber(L, -1) ? to_time(L, -1) : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return value;
}

static void set(lua_State *L, int table, const char *field, int64_t value) {
  push_time(L, value);
  lua_setfield(L, table, field);
}

static void set_list(lua_State *L, int table, const char *field, const int *list, int count) {
  lua_newtable(L);
  for (int i = 0; i < count; i++) {
    push_time(L, list[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, table, field);
}

// The result of a plan: its code, and the words if it is not "ok".
static int give_code(lua_State *L, al_code code, const char *words) {
  lua_pushstring(L, al_code_name(code));
  lua_pushstring(L, code == AL_OK ? NULL : words);
  return 2;
}

// A value that Lua keeps, and does not look into. It is zeroed.
static void *push_box(lua_State *L, size_t size) { return memset(lua_newuserdata(L, size), 0, size); }

#define box(index) lua_touserdata(L, index)

// A function that pushes what this expression gives.
#define GIVES(function, push, expression)                                                                    \
  static int function(lua_State *L) {                                                                        \
    push(L, expression);                                                                                     \
    return 1;                                                                                                \
  }

// ---- random.h, backoff.h --------------------------------------------------------------------------------------------

static int push_random(lua_State *L, uint64_t state) {
  *(uint64_t *)push_box(L, sizeof state) = state;
  return 1;
}

// random(seed) -> a state
static int random_new(lua_State *L) { return push_random(L, (uint64_t)to_time(L, 1)); }

// drawing(number) -> the state from which al_random() next returns this number: al_random() backwards
static int random_drawing(lua_State *L) {
  uint64_t z = (uint64_t)to_time(L, 1);
  z = (z ^ (z >> 31) ^ (z >> 62)) * UINT64_C(0x319642B2D24D8EC3);
  z = (z ^ (z >> 27) ^ (z >> 54)) * UINT64_C(0x96DE1B173F119089);
  return push_random(L, (z ^ (z >> 30) ^ (z >> 60)) - UINT64_C(0x9E3779B97F4A7C15));
}

// next_random(state) -> the number, in hexadecimal
static int random_next(lua_State *L) {
  char digits[17];
  snprintf(digits, sizeof digits, "%016" PRIx64, al_random(box(1)));
  lua_pushstring(L, digits);
  return 1;
}

GIVES(random_below, push_time, al_random_below(box(1), to_time(L, 2)))
GIVES(deadline_after, push_time, al_deadline_after(to_time(L, 1), to_time(L, 2)))
GIVES(backoff_recheck, push_time, al_backoff_recheck(to_time(L, 1), box(2)))

// backoff_next(wait, state), where wait is { first =, most =, next = }
static int backoff_next(lua_State *L) {
  al_backoff wait = {.first = get(L, 1, "first"), .most = get(L, 1, "most"), .next = get(L, 1, "next")};
  int64_t time = al_backoff_next(&wait, box(2));
  set(L, 1, "next", wait.next);
  push_time(L, time);
  return 1;
}

// backoffs() -> all there are, by name
static int backoffs(lua_State *L) {
  const struct {
    const char *name;
    al_backoff wait;
  } all[] = {{"slot", AL_BACKOFF_SLOT},   {"admin", AL_BACKOFF_ADMIN}, {"reconnect", AL_BACKOFF_RECONNECT},
             {"queue", AL_BACKOFF_QUEUE}, {"undo", AL_BACKOFF_UNDO},   {"readers", AL_BACKOFF_READERS},
             {"token", AL_BACKOFF_TOKEN}};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    lua_newtable(L);
    set(L, lua_gettop(L), "first", all[i].wait.first);
    set(L, lua_gettop(L), "most", all[i].wait.most);
    lua_setfield(L, -2, all[i].name);
  }
  return 1;
}

// ---- pacing.h -----------------------------------------------------------------------------------------------------

// pacing(options) -> as al_pacing_init() makes it
static int pacing_new(lua_State *L) {
  al_acquire_options options = {.fair = get(L, 1, "fair"), .poll = get(L, 1, "poll")};
  al_pacing_init(push_box(L, sizeof(al_pacing)), &options, get(L, 1, "is_wary") != 0);
  return 1;
}

// (pacing, has_token, now, state)
GIVES(pacing_leave, push_time, al_pacing_leave(box(1), lua_toboolean(L, 2), to_time(L, 3)))
GIVES(pacing_next_search, push_time,
      al_pacing_next_search(box(1), lua_toboolean(L, 2), to_time(L, 3), box(4)))
GIVES(pacing_is_over, lua_pushboolean, al_pacing_is_over(box(1), lua_toboolean(L, 2)))

// ---- slot_plan.h ----------------------------------------------------------------------------------------------------

static bool has_memory = true;

// Named by the linker's --wrap: what malloc is to the objects of the core here.
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return has_memory ? __real_malloc(size) : NULL; }

static al_action get_action(lua_State *L, int table) {
  lua_getfield(L, table, "action");
  const char *verb = luaL_checkstring(L, -1);
  int action = AL_CREATE;
  while (action < AL_REPAIR && strcmp(al_action_verb((al_action)action), verb) != 0) action++;
  lua_pop(L, 1);
  return (al_action)action;
}

// `exists` is the list of the slots that exist. The array lies on the stack.
static al_slot_count get_row(lua_State *L, int table, const char *name) {
  al_slot_count row = {.name = name,
                       .count = (int)get(L, table, "count"),
                       .highest = (int)get(L, table, "highest"),
                       .seen = (int)get(L, table, "seen")};
  size_t size = (size_t)row.seen * sizeof *row.slots;
  row.slots = memset(lua_newuserdata(L, size + 1), 0, size);
  lua_getfield(L, table, "exists");
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    int slot = (int)to_time(L, -1);
    if (slot < 1 || slot > row.seen) luaL_error(L, "slot %d is not among those seen", slot);
    row.slots[slot - 1].exists = true;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return row;
}

static void set_row(lua_State *L, int table, const al_slot_count *row) {
  int count = 0, *list = lua_newuserdata(L, ((size_t)row->seen + 1) * sizeof *list);
  for (int slot = 1; slot <= row->seen; slot++)
    if (row->slots[slot - 1].exists) list[count++] = slot;
  set_list(L, table, "exists", list, count);
}

// slot_plan_plan(change, row, name [, without_memory]) -> code, words
static int slot_plan_plan(lua_State *L) {
  char words[AL_MESSAGE_SIZE] = "";
  al_slot_plan change = {.action = get_action(L, 1),
                         .amount = (int)get(L, 1, "amount"),
                         .overshoot = (int)get(L, 1, "overshoot"),
                         .ascending = get(L, 1, "ascending"),
                         .target = -1};
  al_slot_count row = get_row(L, 2, luaL_checkstring(L, 3));
  has_memory = !lua_toboolean(L, 4);
  al_code code = al_slot_plan_plan(&change, &row, words);
  has_memory = true;
  set(L, 1, "target", change.target);
  set_list(L, 1, "deletes", change.deletes, change.delete_count);
  set_row(L, 2, &row);
  al_slot_plan_free(&change);
  return give_code(L, code, words);
}

// ---- token_plan.h ---------------------------------------------------------------------------------------------------

static al_inspect get_inspect(lua_State *L, int table, const char *field) {
  lua_getfield(L, table, field);
  int index = lua_gettop(L);
  al_inspect inspect = {.exists = get(L, index, "exists"), .ready = (int)get(L, index, "ready")};
  lua_pop(L, 1);
  return inspect;
}

// token_plan_make(plan, queues, name) -> code, words
static int token_plan_make(lua_State *L) {
  static const char *const ways[] = {"leaves",  "makes",   "adds",  "takes",
                                     "empties", "deletes", "mends", "adopts"};
  char words[AL_MESSAGE_SIZE] = "";
  al_token_plan plan = {.action = get_action(L, 1),
                        .amount = (int)get(L, 1, "amount"),
                        .waits = get(L, 1, "waits"),
                        .target = -1};
  al_token_queues queues = {.permits = get_inspect(L, 2, "permits"), .marks = get_inspect(L, 2, "marks")};
  const char *name = luaL_checkstring(L, 3);
  al_name(queues.permits.queue, AL_SUFFIX_PERMITS, name);
  al_name(queues.marks.queue, AL_SUFFIX_MARKS, queues.permits.queue);
  al_code code = al_token_plan_make(&plan, &queues, name, words);
  lua_pushstring(L, ways[plan.way]);
  lua_setfield(L, 1, "way");
  set(L, 1, "count", plan.count);
  set(L, 1, "target", plan.target);
  set(L, 1, "takes", plan.takes);
  set(L, 1, "marks", plan.marks);
  set(L, 1, "permits", plan.permits);
  return give_code(L, code, words);
}

// ---- name.h ---------------------------------------------------------------------------------------------------------

#define NAME(function, argument)                                                                             \
  static int name_##function(lua_State *L) {                                                                 \
    char out[AL_NAME_SIZE];                                                                                  \
    al_name_##function(out, luaL_checkstring(L, 1), argument);                                               \
    lua_pushstring(L, out);                                                                                  \
    return 1;                                                                                                \
  }
NAME(slot, (int)luaL_checknumber(L, 2))
NAME(holder, (int)luaL_checknumber(L, 2))
NAME(scratch, luaL_checkstring(L, 2))
NAME(reader, luaL_checkstring(L, 2))

// A function for each suffix, which it has as its upvalue.
static int name_with_suffix(lua_State *L) {
  char out[AL_NAME_SIZE];
  al_name(out, (al_suffix)lua_tointeger(L, lua_upvalueindex(1)), luaL_checkstring(L, 1));
  lua_pushstring(L, out);
  return 1;
}

static const char *const suffixes[AL_SUFFIX_COUNT] = {[AL_SUFFIX_BELL] = "bell",
                                                      [AL_SUFFIX_ADMIN] = "admin",
                                                      [AL_SUFFIX_MUTEX] = "mutex",
                                                      [AL_SUFFIX_MUTEX_BELL] = "mutex_bell",
                                                      [AL_SUFFIX_FAST_MUTEX] = "fast_mutex",
                                                      [AL_SUFFIX_DOOR] = "door",
                                                      [AL_SUFFIX_READERS] = "readers",
                                                      [AL_SUFFIX_RW_BELL] = "rw_bell",
                                                      [AL_SUFFIX_PERMITS] = "permits",
                                                      [AL_SUFFIX_TOKEN_ADMIN] = "token_admin",
                                                      [AL_SUFFIX_MANY] = "many",
                                                      [AL_SUFFIX_MANY_BELL] = "many_bell",
                                                      [AL_SUFFIX_TOKEN_MANY] = "token_many",
                                                      [AL_SUFFIX_TOKEN_MANY_BELL] = "token_many_bell",
                                                      [AL_SUFFIX_FENCE] = "fence",
                                                      [AL_SUFFIX_MUTEX_FENCE] = "mutex_fence",
                                                      [AL_SUFFIX_RW_FENCE] = "rw_fence",
                                                      [AL_SUFFIX_BOLT] = "bolt",
                                                      [AL_SUFFIX_SEAL] = "seal",
                                                      [AL_SUFFIX_MARKS] = "marks",
                                                      [AL_SUFFIX_FENCE_MAKER] = "fence_maker",
                                                      [AL_SUFFIX_FENCE_UNFINISHED] = "fence_unfinished"};

// queue_parse(queue) -> part, name, slot
static int queue_parse(lua_State *L) {
  // In the order of al_queue_part.
  static const char *const parts[] = {"other",    "slot",        "holder",      "bell",    "admin",
                                      "mutex",    "mutex_bell",  "reader",      "door",    "rw_bell",
                                      "permits",  "marks",       "token_admin", "fence",   "mutex_fence",
                                      "rw_fence", "fence_maker", "bolt",        "scratch", "fast_mutex",
                                      "many",     "many_bell",   "seal"};
  char name[AL_NAME_SIZE];
  int slot = -1;
  al_queue_part part = al_queue_parse(luaL_checkstring(L, 1), name, &slot),
                without = al_queue_parse(lua_tostring(L, 1), name, NULL);
  if (part != without) return luaL_error(L, "without a place for the slot it is another part");
  lua_pushstring(L, parts[part]);
  lua_pushstring(L, name);
  lua_pushinteger(L, slot);
  return 3;
}

// ---- ids.h, nodes.h -------------------------------------------------------------------------------------------------

static int ids_free(lua_State *L) {
  al_ids_free(box(1));
  return 0;
}

// ids(most) -> an empty set
static int ids_new(lua_State *L) {
  if (!al_ids_init(push_box(L, sizeof(al_ids)), (size_t)luaL_checknumber(L, 1)))
    return luaL_error(L, "no memory");
  lua_newtable(L);
  lua_pushcfunction(L, ids_free);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  return 1;
}

GIVES(ids_add, lua_pushboolean, al_ids_add(box(1), luaL_checkstring(L, 2)))

// codes_that_go_on() -> { name of a code = what al_nodes_go_on() says of it }
static int codes_that_go_on(lua_State *L) {
  lua_newtable(L);
  for (int code = AL_OK; code <= AL_URL; code++) {
    lua_pushboolean(L, al_nodes_go_on((al_code)code));
    lua_setfield(L, -2, al_code_name((al_code)code));
  }
  return 1;
}

// op_shows(slot): of an operation that has seen one slot. There are others in memory before and after it.
GIVES(op_shows, lua_pushboolean,
      al_op_slot(&(al_op){.slots = (al_slot[3]){{true, true}, {true, true}, {true, true}} + 1, .seen = 1},
                 (size_t)luaL_checknumber(L, 1))
          .exists)

// ---- the module -----------------------------------------------------------------------------------------------------

#define FUNCTION(function)                                                                                   \
  { #function, function }

int luaopen_deciders(lua_State *L) {
  static const luaL_Reg functions[] = {{"random", random_new},
                                       {"drawing", random_drawing},
                                       {"next_random", random_next},
                                       {"pacing", pacing_new},
                                       {"ids", ids_new},
                                       FUNCTION(random_below),
                                       FUNCTION(deadline_after),
                                       FUNCTION(backoff_next),
                                       FUNCTION(backoff_recheck),
                                       FUNCTION(backoffs),
                                       FUNCTION(pacing_leave),
                                       FUNCTION(pacing_next_search),
                                       FUNCTION(pacing_is_over),
                                       FUNCTION(slot_plan_plan),
                                       FUNCTION(token_plan_make),
                                       FUNCTION(queue_parse),
                                       FUNCTION(ids_add),
                                       FUNCTION(codes_that_go_on),
                                       FUNCTION(op_shows),
                                       {NULL, NULL}};
  static const luaL_Reg names[] = {{"slot", name_slot},
                                   {"holder", name_holder},
                                   {"scratch", name_scratch},
                                   {"reader", name_reader},
                                   {NULL, NULL}};
  module(L, functions);
  module(L, names);
  for (int suffix = 0; suffix < AL_SUFFIX_COUNT; suffix++) {
    lua_pushinteger(L, suffix);
    lua_pushcclosure(L, name_with_suffix, 1);
    lua_setfield(L, -2, suffixes[suffix]);
  }
  lua_setfield(L, -2, "names");
  set(L, lua_gettop(L), "lock_name_max", AL_LOCK_NAME_MAX);
  set(L, lua_gettop(L), "suffix_max", AL_SUFFIX_MAX);
  return 1;
}
