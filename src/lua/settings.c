/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The settings of a session, from a Lua table: { url =, order =, name =, heartbeat =, timeout =, tls = }. The
 * field `url` may have several URLs, in a list or separated by commas. Each host gets settings of its own. */
#include <stdio.h>
#include <string.h>

#include "lua/binding.h"

static void copy_field(lua_State *L, int table, const char *key, char *out, size_t size) {
  lua_getfield(L, table, key);
  size_t length = 0;
  const char *text = lua_tolstring(L, -1, &length);
  if (text && length >= size) luaL_error(L, "%s is longer than %d bytes", key, (int)size - 1);
  if (text) memcpy(out, text, length + 1);
  lua_pop(L, 1);
}

void al_lua_number_field(lua_State *L, int table, const char *key, int *out) {
  lua_getfield(L, table, key);
  if (!lua_isnil(L, -1)) *out = (int)luaL_checknumber(L, -1);
  lua_pop(L, 1);
}

bool al_lua_flag_field(lua_State *L, int table, const char *key) {
  lua_getfield(L, table, key);
  bool flag = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return flag;
}

static bool read_tls(lua_State *L, int table, al_settings *settings) {
  lua_getfield(L, table, "tls");
  int tls = lua_gettop(L);
  bool is_given = lua_istable(L, tls);
  if (is_given) {
    copy_field(L, tls, "ca", settings->ca, sizeof settings->ca);
    copy_field(L, tls, "cert", settings->cert, sizeof settings->cert);
    copy_field(L, tls, "key", settings->key, sizeof settings->key);
    copy_field(L, tls, "server_name", settings->server_name, sizeof settings->server_name);
    lua_getfield(L, tls, "verify");
    if (!lua_isnil(L, -1)) settings->verify = lua_toboolean(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return is_given;
}

/* ---- URLs ------------------------------------------------------------------------------------------------------- */

/* The value at `index` is one URL or a list of URLs. These return their number, and push one of them. */
static int urls_count(lua_State *L, int index) {
  if (lua_isnil(L, index)) return 0;
  return lua_istable(L, index) ? (int)al_lua_length(L, index) : 1;
}

static const char *push_url(lua_State *L, int index, int i, size_t *length) {
  if (lua_istable(L, index))
    lua_rawgeti(L, index, i);
  else
    lua_pushvalue(L, index);
  return luaL_checklstring(L, -1, length);
}

/* An upper limit of the number of hosts in the URLs: a comma may also stand in a password. */
static size_t hosts_most(lua_State *L, int index) {
  size_t most = 0, length;
  for (int i = 1; i <= urls_count(L, index) && most < AL_HOSTS_MAX; i++, most++) {
    for (const char *c = push_url(L, index, i, &length); *c; c++) most += *c == ',';
    lua_pop(L, 1);
  }
  if (most > AL_HOSTS_MAX) return AL_HOSTS_MAX;
  return most > 0 ? most : 1;
}

/* Reads one URL into `all`; all[0] has the defaults before. Returns the number of hosts in the URL, 0 if it is
 * wrong. */
static size_t read_url(lua_State *L, int index, int i, al_settings *all, size_t size,
                       char why[AL_MESSAGE_SIZE]) {
  size_t length, count = 0;
  const char *url = push_url(L, index, i, &length);
  if (strlen(url) != length)
    snprintf(why, AL_MESSAGE_SIZE, "the URL holds a NUL");
  else if (size == 0)
    snprintf(why, AL_MESSAGE_SIZE, "the URLs name more hosts than %d", AL_HOSTS_MAX);
  else
    count = al_settings_urls(all, size, url, why);
  lua_pop(L, 1);
  return count;
}

/* All URLs must name one virtual host, as each virtual host has its own locks. */
static bool agree(const al_settings *all, size_t count, char why[AL_MESSAGE_SIZE]) {
  for (size_t i = 1; i < count; i++) {
    if (strcmp(all[i].vhost, all[0].vhost) == 0) continue;
    snprintf(why, AL_MESSAGE_SIZE,
             "the URLs of a list name nodes of one cluster: "
             "their virtual hosts must be the same");
    return false;
  }
  return true;
}

/* Adds to `why` which URL is wrong, if there are several. */
static void name_url(int i, int urls, char why[AL_MESSAGE_SIZE]) {
  char words[AL_MESSAGE_SIZE];
  if (urls == 1) return;
  memcpy(words, why, sizeof words);
  snprintf(why, AL_MESSAGE_SIZE, "URL %d of %d: %.400s", i, urls, words);
}

/* Reads all URLs into `all`, which has room for `size` hosts. Returns the number of hosts; 0: `why` tells the
 * reason. */
static size_t read_urls(lua_State *L, int index, al_settings *all, size_t size, char why[AL_MESSAGE_SIZE]) {
  int urls = urls_count(L, index);
  size_t count = 0;
  const al_settings usual = all[0];
  if (lua_isnil(L, index)) return 1;
  if (urls == 0) snprintf(why, AL_MESSAGE_SIZE, "the list of URLs is empty");
  for (int i = 1; i <= urls; i++) {
    if (count < size) all[count] = usual;
    size_t read = read_url(L, index, i, all + count, size - count, why);
    if (read == 0) {
      name_url(i, urls, why);
      return 0;
    }
    count += read;
  }
  return agree(all, count, why) ? count : 0;
}

/* Reads the options that are not part of the URL, or that override it. */
static bool read_beside(lua_State *L, int table, al_settings *settings, char why[AL_MESSAGE_SIZE]) {
  copy_field(L, table, "name", settings->name, sizeof settings->name);
  copy_field(L, table, "trace", settings->trace, sizeof settings->trace);
  al_lua_number_field(L, table, "heartbeat", &settings->heartbeat);
  settings->timeout = al_lua_time_field(L, table, "timeout", settings->timeout);
  if (!read_tls(L, table, settings) || settings->tls || !al_lua_flag_field(L, table, "rotates")) return true;
  snprintf(why, AL_MESSAGE_SIZE, "option tls needs an amqps:// URL");
  return false;
}

/* Adds to `why` where the URL comes from, if the table has a field `origin`. */
static void name_origin(lua_State *L, int table, char why[AL_MESSAGE_SIZE]) {
  char words[AL_MESSAGE_SIZE];
  memcpy(words, why, sizeof words);
  lua_getfield(L, table, "origin");
  snprintf(why, AL_MESSAGE_SIZE, "%.100s%.400s", lua_isstring(L, -1) ? lua_tostring(L, -1) : "", words);
  lua_pop(L, 1);
}

al_settings *al_lua_push_settings(lua_State *L, int table, size_t *count, char why[AL_MESSAGE_SIZE]) {
  lua_getfield(L, table, "url");
  int url = lua_gettop(L);
  size_t size = hosts_most(L, url);
  al_settings *all = lua_newuserdata(L, size * sizeof *all);
  al_settings_init(all);
  al_lua_number_field(L, table, "usual_heartbeat", &all->heartbeat); /* the URL may override it */
  *count = read_urls(L, url, all, size, why);
  bool good = *count > 0;
  for (size_t i = 0; good && i < *count; i++) good = read_beside(L, table, &all[i], why);
  lua_remove(L, url);
  if (good) return all;
  name_origin(L, table, why);
  explicit_bzero(all, size * sizeof *all);
  lua_pop(L, 1);
  return NULL;
}

/* core.url_error(url) -> nil if the URL, or the list of URLs, is valid; otherwise what is wrong with it. */
static int url_error(lua_State *L) {
  char why[AL_MESSAGE_SIZE];
  size_t count;
  lua_settop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, 1);
  lua_setfield(L, 2, "url");
  al_settings *all = al_lua_push_settings(L, 2, &count, why);
  if (all) {
    explicit_bzero(all, count * sizeof *all);
    return 0;
  }
  lua_pushstring(L, why);
  return 1;
}

/* All that tells one connection from another, but the user and the password. */
static void push_place(lua_State *L, const al_settings *s) {
  lua_pushfstring(L, "%s:%d\n%s\n%s\n", s->host, s->port, s->vhost, s->name);
  lua_pushfstring(L, "%d %d %f %d %d %d\n", s->heartbeat, s->channel_max,
                  (lua_Number)s->timeout / (lua_Number)AL_SECOND, s->tls, s->verify, s->external);
  lua_pushfstring(L, "%s\n%s\n%s\n%s", s->ca, s->cert, s->key, s->server_name);
  lua_concat(L, 3);
}

/* core.places{ url =, … } -> for each host a text, the same for what differs only in user and password; nil if the URL, or
 * the list of them, is wrong */
static int places(lua_State *L) {
  char why[AL_MESSAGE_SIZE];
  size_t count;
  al_settings *all = al_lua_push_settings(L, 1, &count, why);
  if (!all) return 0;
  for (size_t i = 0; i < count; i++) explicit_bzero(all[i].password, sizeof all[i].password);
  lua_newtable(L);
  for (size_t i = 0; i < count; i++) {
    push_place(L, &all[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

void al_lua_open_settings(lua_State *L) {
  lua_pushcfunction(L, places);
  lua_setfield(L, -2, "places");
  lua_pushcfunction(L, url_error);
  lua_setfield(L, -2, "url_error");
}
