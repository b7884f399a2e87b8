/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Sessions: how they are made from settings, and what all of them have. A native session has sockets of its own, and
 * waits in C; bytes.c has the sessions without sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/session/loop.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/wire/connection.h"
#include "lua/binding.h"
#include "transport/native.h"
#include "transport/system.h"

/* ---- settings --------------------------------------------------------------------------------------------------- */

int al_lua_refuse_url(lua_State *L, const char *why) {
  lua_pushnil(L);
  lua_pushfstring(L, "url: %s", why);
  lua_pushliteral(L, "url");
  return 3;
}

/* How the session uses the nodes of its URLs. `rotates`: Lua is asked for the nodes before each connection.
 * `is_addressed`: the nodes given are those for the first connection. */
typedef struct usage {
  bool rotates, is_addressed, is_shuffled;
} usage;

static usage read_usage(lua_State *L, int table) {
  usage usage = {.rotates = al_lua_flag_field(L, table, "rotates"),
                 .is_addressed = al_lua_flag_field(L, table, "addressed")};
  lua_getfield(L, table, "order");
  usage.is_shuffled = lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "random") == 0;
  lua_pop(L, 1);
  return usage;
}

/* Calls no function that may raise a Lua error: the session would not be freed then. */
static bool list_nodes(al_session *session, usage usage, const al_settings *all, size_t count) {
  if (count == 1 && !usage.rotates) return true;
  if (!al_session_list_nodes(session, all, count, usage.is_shuffled)) return false;
  al_link_rotate(&session->holder, usage.rotates, usage.is_addressed);
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 1; i < AL_LINKS; i++) al_link_rotate(links[i], usage.rotates, false);
  return true;
}

static al_session *make_native(const al_settings *settings, int seed) {
  (void)seed;
  return al_native_new(settings);
}

/* Pushes a session made from the table at index 1. NULL: pushes nil, message, code. */
al_lua_session *al_lua_new_session(lua_State *L, al_lua_transport transport, al_lua_make_session *make) {
  char why[AL_MESSAGE_SIZE];
  size_t count;
  int seed = 1;
  al_lua_number_field(L, 1, "seed", &seed);
  usage usage = read_usage(L, 1);
  al_lua_session *box = al_lua_new_box(L, sizeof *box, AL_LUA_SESSION);
  box->transport = transport;
  al_settings *all = al_lua_push_settings(L, 1, &count, why);
  if (!all) {
    al_lua_refuse_url(L, why);
    return NULL;
  }
  al_session *session = make(all, seed);
  bool is_made = session && list_nodes(session, usage, all, count);
  explicit_bzero(all, count * sizeof *all);
  lua_pop(L, 1);
  if (is_made) {
    box->session = session;
    return box;
  }
  al_session_drop(session);
  al_lua_no_memory(L);
  return NULL;
}

/* ---- both kinds ------------------------------------------------------------------------------------------------- */

al_lua_session *al_lua_check_session(lua_State *L, int index) {
  al_lua_session *box = luaL_checkudata(L, index, AL_LUA_SESSION);
  luaL_argcheck(L, box->session, index, "the session was freed");
  if (box->transport == AL_LUA_NATIVE) al_native_touch(box->session);
  return box;
}

bool al_lua_is_settled(lua_State *L, int index, const al_session *session, al_lua_transport transport,
                       uint64_t *settled) {
  if (transport != AL_LUA_NATIVE || lua_isnoneornil(L, index)) return false;
  *settled = (uint64_t)luaL_checknumber(L, index);
  return al_session_is_quiet(session, *settled);
}

/* core.native{ url =, order =, name =, heartbeat =, timeout =, tls =, rotates =, addressed =, origin = } ->
 * session | nil, message, code */
static int new_native(lua_State *L) {
  al_lua_session *box = al_lua_new_session(L, AL_LUA_NATIVE, make_native);
  if (!box) return 3;
  al_lua_own(L, box->session);
  return 1;
}

static int session_gc(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  al_session *session = box->session;
  box->session = NULL;
  if (session && box->transport == AL_LUA_NATIVE)
    al_lua_end(session);
  else if (session)
    al_session_drop(session);
  return 0;
}

static int session_open(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_session_open(session);
  return al_lua_begun(L, op);
}

static int session_close(lua_State *L) {
  al_session *session = al_lua_check_session(L, 1)->session;
  al_op **op = al_lua_new_op(L, AL_LUA_TRUE, 1);
  *op = al_session_close(session);
  return al_lua_begun(L, op);
}

static int session_abort(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  if (!box->session) return 0;
  if (box->transport == AL_LUA_NATIVE)
    al_native_retire(box->session);
  else
    al_session_abort(box->session);
  return 0;
}

/* session:wait(operation): waits for the operation, for about a second, or longer while it connects: see
 * al_native_wait(). For native sessions. */
static int session_wait(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session && box->transport == AL_LUA_NATIVE, 1, "not a native session");
  al_native_wait(box->session, al_lua_check_op(L, 2));
  return 0;
}

/* session:news() -> level, message; nothing if there is none. For options.log. */
static int session_news(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  al_note note;
  if (!box->session || !al_session_news(box->session, &note)) return 0;
  lua_pushstring(L, note.is_warning ? "warning" : "info");
  lua_pushstring(L, note.text);
  return 2;
}

/* session:alerts() -> the number of alerts so far; session:pollfd() is not readable any more then. */
static int session_alerts(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  lua_pushnumber(L, box->session ? (lua_Number)al_session_alerts(box->session) : 0);
  return 1;
}

/* session:is_quiet(alerts) -> true if there are no notes, and no alerts beyond the first `alerts` */
static int session_is_quiet(lua_State *L) {
  const al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  lua_Number alerts = luaL_checknumber(L, 2);
  lua_pushboolean(L, !box->session || al_session_is_quiet(box->session, (uint64_t)alerts));
  return 1;
}

/* session:pollfd() -> a file descriptor, readable while there are alerts; nil if there is none, or none any more */
static int session_pollfd(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  int fd = box->session && box->transport == AL_LUA_NATIVE ? al_native_pollfd(box->session) : -1;
  if (fd < 0)
    lua_pushnil(L);
  else
    lua_pushinteger(L, fd);
  return 1;
}

/* session:timeout() -> in how many seconds the session needs a call; nil: it needs none */
static int session_timeout(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  int64_t timeout =
      box->session && box->transport == AL_LUA_NATIVE ? al_native_timeout(box->session) : AL_NEVER;
  if (timeout == AL_NEVER)
    lua_pushnil(L);
  else
    lua_pushnumber(L, (double)timeout / (double)AL_SECOND);
  return 1;
}

/* session:is_tls() -> do all its nodes use TLS? */
static int session_is_tls(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  lua_pushboolean(L, box->session && al_link_is_tls(&box->session->holder));
  return 1;
}

static void set_count(lua_State *L, const char *key, uint64_t count) {
  al_lua_push_integer(L, (int64_t)count);
  lua_setfield(L, -2, key);
}

static void push_failed(lua_State *L, const al_stats *stats) {
  lua_newtable(L);
  for (int code = AL_TIMEOUT; code <= AL_URL; code++)
    if (stats->failed[code] > 0) set_count(L, al_code_name((al_code)code), stats->failed[code]);
}

/* session:stats() -> { held =, waiting =, … }: see conn:stats() */
static int session_stats(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  al_stats stats = {.silence = -1};
  if (box->session) al_session_stats(box->session, &stats, sizeof stats);
  lua_newtable(L);
  set_count(L, "held", stats.held);
  set_count(L, "waiting", stats.waiting);
  set_count(L, "acquired", stats.acquired);
  set_count(L, "retained", stats.retained);
  set_count(L, "lost", stats.lost);
  set_count(L, "revoked", stats.revoked);
  set_count(L, "contended", stats.contended);
  set_count(L, "probes", stats.probes);
  lua_newtable(L);
  set_count(L, "holder", stats.opened_holder);
  set_count(L, "prober", stats.opened_prober);
  set_count(L, "quorum", stats.opened_quorum);
  lua_setfield(L, -2, "opened");
  push_failed(L, &stats);
  lua_setfield(L, -2, "failed");
  if (stats.silence >= 0) {
    lua_pushnumber(L, (double)stats.silence / (double)AL_SECOND);
    lua_setfield(L, -2, "silence");
  }
  lua_pushboolean(L, stats.blocked);
  lua_setfield(L, -2, "blocked");
  return 1;
}

/* session:place() -> the cluster's name, "" before the first connection; the virtual host */
static int session_place(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  lua_pushstring(L, box->session ? al_session_cluster(box->session) : "");
  lua_pushstring(L, box->session ? box->session->settings.vhost : "");
  return 2;
}

static int session_name(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  lua_pushstring(L, box->session ? box->session->settings.name : "");
  return 1;
}

/* session:state("holder") -> "idle" … "down", wanted (boolean) */
al_link *al_lua_check_link(lua_State *L, al_session *session, int index) {
  static const char *const names[] = {"holder", "prober", "fence", "maker", "quorum", NULL};
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  return links[luaL_checkoption(L, index, NULL, names)];
}

static int session_state(lua_State *L) {
  static const char *const names[] = {"idle", "greeting", "tuning", "opening", "open", "closing", "down"};
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session, 1, "the session was freed");
  const al_link *link = al_lua_check_link(L, box->session, 2);
  al_link_state state;
  bool wanted;
  {
    AL_TURN(box->session);
    state = link->state;
    wanted = link->wanted;
  }
  lua_pushstring(L, names[state]);
  lua_pushboolean(L, wanted);
  return 2;
}

/* session:pause("holder") -> in how many seconds the next connect may begin */
static int session_pause(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session, 1, "the session was freed");
  const al_link *link = al_lua_check_link(L, box->session, 2);
  int64_t pause;
  {
    AL_TURN(box->session);
    pause = link->due_at - link->now;
  }
  lua_pushnumber(L, pause > 0 ? (double)pause / (double)AL_SECOND : 0);
  return 1;
}

static const luaL_Reg methods[] = {{"open", session_open},
                                   {"close", session_close},
                                   {"abort", session_abort},
                                   {"drop", session_abort},
                                   {"wait", session_wait},
                                   {"name", session_name},
                                   {"news", session_news},
                                   {"is_tls", session_is_tls},
                                   {"state", session_state},
                                   {"alerts", session_alerts},
                                   {"is_quiet", session_is_quiet},
                                   {"pollfd", session_pollfd},
                                   {"timeout", session_timeout},
                                   {"pause", session_pause},
                                   {"place", session_place},
                                   {"stats", session_stats},
                                   {NULL, NULL}};

void al_lua_open_session(lua_State *L) {
  al_lua_new_type(L, AL_LUA_SESSION, methods, session_gc);
  al_lua_close_by(L, AL_LUA_SESSION, session_abort);
  lua_pushcfunction(L, new_native);
  lua_setfield(L, -2, "native");
}
