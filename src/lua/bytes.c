/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Sessions over bytes: they have no sockets. Lua code passes them the bytes that were received, and sends the bytes that they
 * return. A session of an event loop knows the time; a session that is told everything is told the time as well, for tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/session/loop.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/wire/connection.h"
#include "lua/binding.h"
#include "transport/bytes.h"
#include "transport/loop.h"
#include "transport/system.h"

static al_session *make_loop(const al_settings *settings, int seed) {
  (void)seed;
  return al_loop_new(settings);
}

/* core.loop{ … } -> session | nil, message, code */
static int new_loop(lua_State *L) { return al_lua_new_session(L, AL_LUA_LOOP, make_loop) ? 1 : 3; }

struct al_transport {
  int64_t later; /* the time after the next read */
};

static int64_t told_clock(const al_session *session) { return session->transport->later; }

static void told_free(struct al_transport *told) { free(told); }

static al_session *told_new(const al_settings *settings, int seed) {
  struct al_transport *told = calloc(1, sizeof *told);
  al_session *session = told ? al_session_new(settings, (uint64_t)seed) : NULL;
  if (!session) {
    free(told);
    return NULL;
  }
  session->transport = told;
  session->transport_free = told_free;
  session->clock = told_clock;
  return session;
}

/* core.bytes{ …, seed =, shared = } -> session | nil, message, code */
static int new_bytes(lua_State *L) {
  al_lua_session *box = al_lua_new_session(L, AL_LUA_TOLD, told_new);
  if (!box) return 3;
  box->session->is_shared = al_lua_flag_field(L, 1, "shared");
  return 1;
}

static al_session *check_bytes(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session && box->transport != AL_LUA_NATIVE, 1, "not a session over bytes");
  return box->session;
}

static al_session *check_loop(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session && box->transport == AL_LUA_LOOP, 1, "not a session of a loop");
  return box->session;
}

static al_port *check_port(lua_State *L) {
  al_port *port = al_lua_check_link(L, check_bytes(L), 2)->port;
  luaL_argcheck(L, port, 2, "has no connection");
  return port;
}

/* The collector may abort a session between any two lines of Lua, also behind session:due(): then no connection is
 * wanted any more. */

/* session:attach("holder" [, seconds]): the connection is there, and its handshake may take so long; by default
 * the share of this node in the timeout. */
static int session_attach(lua_State *L) {
  al_session *session = check_bytes(L);
  al_link *link = al_lua_check_link(L, session, 2);
  luaL_argcheck(L, !link->port, 2, "has a connection already");
  int64_t share = al_lua_time(L, 3, al_link_share(link));
  if (al_link_is_lost(link)) return 0;
  al_port *port = al_bytes_port();
  if (port)
    al_connection_attach(link, port, session->now, al_deadline_after(session->now, share));
  else
    al_connection_fail(link, AL_NO_MEMORY, "there is not enough memory for the connection");
  return 0;
}

/* A coroutine of an event loop may run after the garbage collector has dropped its session, as the order of
 * finalizers is open. For that coroutine a dropped session is a session without connections. */
static bool is_given_back(lua_State *L) {
  return !((al_lua_session *)luaL_checkudata(L, 1, AL_LUA_SESSION))->session;
}

/* session:has_forked() -> do its sockets belong to a parent of this process? */
static int session_has_forked(lua_State *L) {
  lua_pushboolean(L, !is_given_back(L) && al_session_forked(check_bytes(L)));
  return 1;
}

/* The link, or NULL if there is none for this process. In the child of a fork there is none: the child must
 * neither read nor write on the sockets of its parent. */
static al_link *link_of_ours(lua_State *L) {
  if (is_given_back(L)) return NULL;
  al_session *session = check_bytes(L);
  return al_session_forked(session) ? NULL : al_lua_check_link(L, session, 2);
}

/* session:due("holder") -> must it be connected now? */
static int session_due(lua_State *L) {
  const al_link *link = link_of_ours(L);
  lua_pushboolean(L, link && al_link_is_due(link));
  return 1;
}

/* session:is_up("holder") -> is there a connection? */
static int session_is_up(lua_State *L) {
  const al_link *link = link_of_ours(L);
  lua_pushboolean(L, link && link->port);
  return 1;
}

/* session:is_unsent("holder") -> are there bytes to send? */
static int session_is_unsent(lua_State *L) {
  size_t length = 0;
  const al_link *link = link_of_ours(L);
  const al_port *port = !link ? NULL : link->port ? link->port : link->parted;
  if (port) al_bytes_output(port, &length);
  lua_pushboolean(L, length > 0);
  return 1;
}

/* session:op_changes() -> how many times an operation has ended, or has begun to wait for other clients */
static int session_op_changes(lua_State *L) {
  lua_pushnumber(L, is_given_back(L) ? 0 : (lua_Number)check_bytes(L)->op_changes);
  return 1;
}

/* session:fail("holder", code, why): the connect has failed. */
static int session_fail(lua_State *L) {
  static const char *const names[] = {"unreachable", "tls", "url", "no_memory", NULL};
  static const al_code codes[] = {AL_UNREACHABLE, AL_TLS, AL_URL, AL_NO_MEMORY};
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session, 1, "the session was freed");
  al_link *link = al_lua_check_link(L, box->session, 2);
  al_code code = codes[luaL_checkoption(L, 3, "unreachable", names)];
  const char *why = luaL_checkstring(L, 4);
  AL_TURN(box->session);
  if (!link->port && !al_link_is_lost(link)) al_connection_fail(link, code, why);
  return 0;
}

/* session:lacks_address("holder") -> must it be connected now, and has Lua still to tell the nodes? */
static int session_lacks_address(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  bool lacks = false;
  if (box->session && !al_session_forked(box->session)) {
    const al_link *link = al_lua_check_link(L, box->session, 2);
    AL_TURN(box->session);
    lacks = al_link_is_due(link) && !al_link_is_ready(link);
  }
  lua_pushboolean(L, lacks);
  return 1;
}

static bool is_vhost(const al_link *link, const al_settings *settings) {
  return strcmp(link->settings->vhost, settings->vhost) == 0;
}

static bool readdress(al_session *session, al_link *link, const al_settings *all, size_t count) {
  AL_TURN(session);
  return link->port || al_link_readdress(link, all, count);
}

/* session:readdress("holder", { url =, … }): the nodes for the next connect. -> true | nil, what is wrong with the
 * URL, code */
static int session_readdress(lua_State *L) {
  al_lua_session *box = luaL_checkudata(L, 1, AL_LUA_SESSION);
  luaL_argcheck(L, box->session, 1, "the session was freed");
  al_link *link = al_lua_check_link(L, box->session, 2);
  char why[AL_MESSAGE_SIZE] = "the function returned another virtual host than before, which has other locks";
  size_t count;
  al_settings *all = al_lua_push_settings(L, 3, &count, why);
  bool is_good = all && is_vhost(link, all), is_done = is_good && readdress(box->session, link, all, count);
  if (all) explicit_bzero(all, count * sizeof *all);
  lua_pushboolean(L, is_done);
  if (is_done) return 1;
  lua_pushnil(L);
  lua_pushstring(L, is_good ? "there is not enough memory for the addresses" : why);
  lua_pushstring(L, is_good ? "no_memory" : "url");
  return 3;
}

/* session:unresolved("holder") -> the name of the host to connect to, whose addresses session:resolve() may give; or
 * nil */
static int session_unresolved(lua_State *L) {
  const al_link *link = al_lua_check_link(L, check_bytes(L), 2);
  if (!al_link_lacks_addresses(link)) return 0;
  lua_pushstring(L, link->settings->host);
  return 1;
}

/* The texts of a list, as addresses; NULL: no memory. */
static al_addresses *new_addresses(lua_State *L, int index) {
  al_addresses *addresses = calloc(1, sizeof *addresses);
  for (int i = 1; addresses && i <= (int)al_lua_length(L, index); i++) {
    lua_rawgeti(L, index, i);
    if (lua_type(L, -1) == LUA_TSTRING) al_addresses_add(addresses, lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return addresses;
}

/* session:resolve("holder", { address, … }, seconds): the addresses of that name, one at least, and how long it took to
 * find them */
static int session_resolve(lua_State *L) {
  al_session *session = check_bytes(L);
  al_link *link = al_lua_check_link(L, session, 2);
  int64_t spent = (int64_t)(luaL_checknumber(L, 4) * (double)AL_SECOND);
  luaL_checktype(L, 3, LUA_TTABLE);
  if (!al_link_lacks_addresses(link)) return 0;
  al_addresses *addresses = new_addresses(L, 3);
  if (addresses && addresses->count > 0) {
    al_link_resolve(link, addresses, spent);
    return 0;
  }
  char why[256] = "there is not enough memory for the addresses";
  if (addresses) snprintf(why, sizeof why, "the name \"%.200s\" has no address", link->settings->host);
  al_connection_fail(link, addresses ? AL_UNREACHABLE : AL_NO_MEMORY, why);
  free(addresses);
  return 0;
}

/* session:address("holder") -> host (a resolved address, if there is one), port, seconds for this place, nil or the TLS
 * options { ca =, cert =, key =, verify =, server_name = }, the host's name */
static void push_tls(lua_State *L, const al_settings *settings) {
  const char *const fields[][2] = {{"ca", settings->ca}, {"cert", settings->cert}, {"key", settings->key}};
  lua_createtable(L, 0, 5);
  for (int i = 0; i < 3; i++) {
    if (fields[i][1][0] == '\0') continue;
    lua_pushstring(L, fields[i][1]);
    lua_setfield(L, -2, fields[i][0]);
  }
  lua_pushstring(L, settings->server_name[0] ? settings->server_name : settings->host);
  lua_setfield(L, -2, "server_name");
  lua_pushboolean(L, settings->verify);
  lua_setfield(L, -2, "verify");
}

static int session_address(lua_State *L) {
  const al_link *link = al_lua_check_link(L, check_bytes(L), 2);
  const al_settings *settings = link->settings;
  lua_pushstring(L, al_link_place(link));
  lua_pushinteger(L, settings->port);
  lua_pushnumber(L, (double)al_link_share(link) / (double)AL_SECOND);
  if (settings->tls)
    push_tls(L, settings);
  else
    lua_pushnil(L);
  lua_pushstring(L, settings->host);
  return 5;
}

/* session:exchange_timeout() -> the seconds allowed for each exchange with the broker */
static int exchange_timeout(lua_State *L) {
  lua_pushnumber(L, (double)check_bytes(L)->settings.timeout / (double)AL_SECOND);
  return 1;
}

/* Pushes nanoseconds as seconds; nil for AL_NEVER. */
static int push_wait(lua_State *L, int64_t wait) {
  if (wait == AL_NEVER)
    lua_pushnil(L);
  else
    lua_pushnumber(L, (double)wait / (double)AL_SECOND);
  return 1;
}

/* session:pump([operation]) -> in how many seconds the next call is needed; nil: not before something else
 * happens. Runs the session: its timers, its links, the steps of its operations. With an operation: when that
 * operation needs the next call. For sessions of event loops. */
static int session_pump(lua_State *L) {
  if (is_given_back(L)) return 0;
  al_session *session = check_loop(L);
  return push_wait(L, al_loop_pump(session, lua_isnoneornil(L, 2) ? NULL : al_lua_check_op(L, 2)));
}

/* session:wake() -> in how many seconds session:pump() must be called; and that moment, to be compared only with
 * other results of this function. Nothing if no timer is set. */
static int session_wake(lua_State *L) {
  if (is_given_back(L)) return 0;
  al_session *session = check_loop(L);
  int64_t left = al_loop_wake(session, NULL);
  if (left == AL_NEVER) return 0;
  push_wait(L, left);
  lua_pushnumber(L, (double)(session->now + left));
  return 2;
}

/* core.now() -> seconds, by the clock of sessions of event loops */
static int now(lua_State *L) {
  lua_pushnumber(L, (double)al_system_now() / (double)AL_SECOND);
  return 1;
}

/* core.wall() -> seconds since the epoch */
static int wall(lua_State *L) {
  lua_pushnumber(L, al_system_wall());
  return 1;
}

/* session:feed("holder", bytes) */
static int session_feed(lua_State *L) {
  size_t length;
  al_port *port = check_port(L);
  const char *bytes = luaL_checklstring(L, 3, &length);
  al_bytes_feed(port, bytes, length);
  return 0;
}

/* The port that has the link's output; NULL if there is none. */
static al_port *output_port(const al_link *link) { return link->port ? link->port : link->parted; }

/* session:output("holder") -> the bytes to send, which count as sent from now on */
static int session_output(lua_State *L) {
  size_t length = 0;
  al_port *port = output_port(al_lua_check_link(L, check_bytes(L), 2));
  const char *bytes = port ? al_bytes_output(port, &length) : "";
  lua_pushlstring(L, bytes, length);
  if (port) al_bytes_sent(port, length);
  return 1;
}

/* session:down("holder", why) */
static int session_down(lua_State *L) {
  al_bytes_down(check_port(L), AL_UNREACHABLE, luaL_checkstring(L, 3));
  return 0;
}

/* The needs of a link: the sum of these. */
enum { LINK_WRITES = 1, LINK_IS_OVER = 2, LINK_IS_WANTED = 4 };

static int needs_of(const al_link *link) {
  size_t length = 0;
  al_port *port = output_port(link);
  bool is_over = link->state == AL_LINK_DOWN || link->state == AL_LINK_IDLE;
  if (port) al_bytes_output(port, &length);
  return (length > 0 ? LINK_WRITES : 0) + (is_over ? LINK_IS_OVER : 0) + (link->wanted ? LINK_IS_WANTED : 0);
}

/* session:tick(now [, wall [, later]]) -> when the next tick is needed; and for the holder, the prober, the two links
 * of the fence and that of quorum queues: 1 if there is output, + 2 if its state is "idle" or "down", + 4 if it is
 * wanted. Sets the time, in seconds, and runs the session. `later`: the time after the next read, as if the process was
 * stopped before that read. */
static int session_tick(lua_State *L) {
  al_session *session = check_bytes(L);
  int64_t now = al_lua_time(L, 2, 0);
  if (session->clock == told_clock) session->transport->later = al_lua_time(L, 4, now);
  al_session_set_time(session, now, luaL_optnumber(L, 3, 0));
  al_session_pump(session, now);
  lua_pushnumber(L, (double)al_session_wake(session) / (double)AL_SECOND);
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) lua_pushinteger(L, needs_of(links[i]));
  return 1 + AL_LINKS;
}

static const luaL_Reg methods[] = {{"attach", session_attach},
                                   {"feed", session_feed},
                                   {"output", session_output},
                                   {"down", session_down},
                                   {"tick", session_tick},
                                   {"due", session_due},
                                   {"fail", session_fail},
                                   {"address", session_address},
                                   {"exchange_timeout", exchange_timeout},
                                   {"lacks_address", session_lacks_address},
                                   {"readdress", session_readdress},
                                   {"unresolved", session_unresolved},
                                   {"resolve", session_resolve},
                                   {"pump", session_pump},
                                   {"wake", session_wake},
                                   {"has_forked", session_has_forked},
                                   {"is_up", session_is_up},
                                   {"is_unsent", session_is_unsent},
                                   {"op_changes", session_op_changes},
                                   {NULL, NULL}};

void al_lua_open_bytes(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"loop", new_loop}, {"bytes", new_bytes}, {"now", now}, {"wall", wall}, {NULL, NULL}};
  al_lua_add_methods(L, AL_LUA_SESSION, methods);
  for (const luaL_Reg *function = functions; function->name; function++) {
    lua_pushcfunction(L, function->func);
    lua_setfield(L, -2, function->name);
  }
}
