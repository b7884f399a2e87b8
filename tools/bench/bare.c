/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The baseline of the budgets: rabbitmq-c alone, in the shortest loops that do the broker's part of a lock's work. It
 * is a Lua module, so that both sides run interleaved in one process. It also has an empty C method, as baseline for
 * calls without I/O. */
#include <lauxlib.h>
#include <lua.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/amqp.h"

#if __has_include(<rabbitmq-c/tcp_socket.h>)
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp_tcp_socket.h>
#endif

#define TYPE "amqplocks.bench.bare"
#define MOST 4096 /* publishes at once */

static amqp_connection_state_t check(lua_State *L) {
  return *(amqp_connection_state_t *)luaL_checkudata(L, 1, TYPE);
}

/* bare.connect(url[, frame_max]) -> connection with channel 1 open, and confirms on channel 2 */
static int connect(lua_State *L) {
  char url[512] = "";
  struct amqp_connection_info info;
  strncpy(url, luaL_checkstring(L, 1), sizeof url - 1);
  int frame_max = (int)luaL_optinteger(L, 2, 131072);
  if (amqp_parse_url(url, &info) != AMQP_STATUS_OK) return luaL_error(L, "bad URL");
  amqp_connection_state_t *box = lua_newuserdata(L, sizeof *box);
  *box = amqp_new_connection();
  luaL_getmetatable(L, TYPE);
  lua_setmetatable(L, -2);
  amqp_socket_t *socket = amqp_tcp_socket_new(*box);
  if (amqp_socket_open(socket, info.host, info.port) != AMQP_STATUS_OK) return luaL_error(L, "no broker");
  amqp_rpc_reply_t reply =
      amqp_login(*box, info.vhost, 0, frame_max, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
  if (reply.reply_type != AMQP_RESPONSE_NORMAL) return luaL_error(L, "no login");
  if (!amqp_channel_open(*box, 1) || !amqp_channel_open(*box, 2) || !amqp_confirm_select(*box, 2))
    return luaL_error(L, "no channel");
  return 1;
}

static int close_connection(lua_State *L) {
  amqp_connection_state_t *box = luaL_checkudata(L, 1, TYPE);
  if (*box) amqp_destroy_connection(*box);
  *box = NULL;
  return 0;
}

/* connection:declare_delete(queue, times): an exclusive queue, declared and deleted */
static int declare_delete(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  for (int i = (int)luaL_checkinteger(L, 3); i > 0; i--) {
    if (!amqp_queue_declare(state, 1, queue, 0, 0, 1, 1, amqp_empty_table))
      return luaL_error(L, "declare failed");
    if (!amqp_queue_delete(state, 1, queue, 0, 0)) return luaL_error(L, "delete failed");
    amqp_maybe_release_buffers(state);
  }
  return 0;
}

/* connection:declare_bind_delete(queue, key, times): an exclusive queue, declared, bound to amq.direct and deleted */
static int declare_bind_delete(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  amqp_bytes_t key = amqp_cstring_bytes(luaL_checkstring(L, 3)), exchange = amqp_cstring_bytes("amq.direct");
  for (int i = (int)luaL_checkinteger(L, 4); i > 0; i--) {
    bool fine = amqp_queue_declare(state, 1, queue, 0, 0, 1, 1, amqp_empty_table) &&
                amqp_queue_bind(state, 1, queue, exchange, key, amqp_empty_table) &&
                amqp_queue_delete(state, 1, queue, 0, 0);
    if (!fine) return luaL_error(L, "declare, bind or delete failed");
    amqp_maybe_release_buffers(state);
  }
  return 0;
}

/* connection:declare(queue), connection:delete(queue): declare_delete in two steps */
static int declare(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  bool fine = amqp_queue_declare(state, 1, queue, 0, 0, 1, 1, amqp_empty_table) != NULL;
  amqp_maybe_release_buffers(state);
  return fine ? 0 : luaL_error(L, "declare failed");
}

static int delete (lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  bool fine = amqp_queue_delete(state, 1, queue, 0, 0) != NULL;
  amqp_maybe_release_buffers(state);
  return fine ? 0 : luaL_error(L, "delete failed");
}

/* connection:publish(name, first, count, kind): mandatory publishes to name-1-A, name-2-A, … at once, and their
 * confirms; kind: "A" by default */
static int publish(lua_State *L) {
  amqp_connection_state_t state = check(L);
  const char *name = luaL_checkstring(L, 2), *kind = luaL_optstring(L, 5, "A");
  int first = (int)luaL_checkinteger(L, 3), count = (int)luaL_checkinteger(L, 4);
  luaL_argcheck(L, count > 0 && count <= MOST, 4, "nothing to publish, or too much");
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG,
                                        .message_id = amqp_cstring_bytes("1")};
  for (int i = 0; i < count; i++) {
    char queue[256];
    snprintf(queue, sizeof queue, "%s-%d-%s", name, first + i, kind);
    amqp_basic_publish(state, 2, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, &properties,
                       amqp_empty_bytes);
  }
  uint64_t *published = lua_touserdata(L, lua_upvalueindex(1)), before = *published;
  char confirmed[MOST] = {0};
  *published += (uint64_t)count;
  for (int left = count; left > 0;) {
    amqp_frame_t frame;
    if (amqp_simple_wait_frame(state, &frame) != AMQP_STATUS_OK) abort();
    if (frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD) {
      const amqp_basic_ack_t *ack = frame.payload.method.decoded;
      int last = (int)(ack->delivery_tag - before) - 1; /* confirms come out of order, and one may be for many */
      for (int i = ack->multiple ? 0 : last; i <= last; i++) {
        left -= !confirmed[i];
        confirmed[i] = 1;
      }
    }
    amqp_maybe_release_buffers_on_channel(state, frame.channel);
  }
  return 0;
}

/* Whether the queue exists: one mandatory publish, and its confirm is awaited. */
static bool exists(amqp_connection_state_t state, const char *name, int slot, char kind) {
  char queue[256];
  bool returned = false;
  snprintf(queue, sizeof queue, "%s-%d-%c", name, slot, kind);
  amqp_basic_publish(state, 2, amqp_empty_bytes, amqp_cstring_bytes(queue), 1, 0, NULL, amqp_empty_bytes);
  for (;;) {
    amqp_frame_t frame;
    if (amqp_simple_wait_frame(state, &frame) != AMQP_STATUS_OK) abort();
    amqp_method_number_t id = frame.frame_type == AMQP_FRAME_METHOD ? frame.payload.method.id : 0;
    amqp_maybe_release_buffers_on_channel(state, frame.channel);
    returned = returned || id == AMQP_BASIC_RETURN_METHOD;
    if (id == AMQP_BASIC_ACK_METHOD) return !returned;
    if (id == AMQP_BASIC_NACK_METHOD) return true; /* it is being deleted */
  }
}

/* connection:acquire_in_turn(name) -> slot: probes a semaphore's slots, one question at a time, until one exists that
 * is free. Then it declares the holder's queue, and probes the slot once more. Do not use it on a connection on which
 * publish() counts delivery tags. */
static int acquire_in_turn(lua_State *L) {
  amqp_connection_state_t state = check(L);
  const char *name = luaL_checkstring(L, 2);
  for (int slot = 1;; slot++) {
    char queue[256];
    if (!exists(state, name, slot, 'A')) return luaL_error(L, "no slot is free");
    if (exists(state, name, slot, 'B')) continue;
    snprintf(queue, sizeof queue, "%s-%d-B", name, slot);
    if (!amqp_queue_declare(state, 1, amqp_cstring_bytes(queue), 0, 0, 1, 1, amqp_empty_table))
      return luaL_error(L, "declare failed");
    if (!exists(state, name, slot, 'A')) return luaL_error(L, "the slot was removed");
    lua_pushinteger(L, slot);
    return 1;
  }
}

/* connection:occupy(name, first, last): declares the holders' queues of these slots at once; they live as long as the
 * connection */
static int occupy(lua_State *L) {
  amqp_connection_state_t state = check(L);
  const char *name = luaL_checkstring(L, 2);
  char queue[256];
  int last = (int)luaL_checkinteger(L, 4);
  for (int slot = (int)luaL_checkinteger(L, 3); slot <= last; slot++) {
    snprintf(queue, sizeof queue, "%s-%d-B", name, slot);
    amqp_queue_declare_t declare = {
        .queue = amqp_cstring_bytes(queue), .exclusive = 1, .auto_delete = 1, .nowait = slot < last};
    if (amqp_send_method(state, 1, AMQP_QUEUE_DECLARE_METHOD, &declare) != AMQP_STATUS_OK)
      return luaL_error(L, "not sent");
  }
  amqp_frame_t frame; /* the answer to the last one */
  bool fine = amqp_simple_wait_frame(state, &frame) == AMQP_STATUS_OK &&
              frame.payload.method.id == AMQP_QUEUE_DECLARE_OK_METHOD;
  amqp_maybe_release_buffers(state);
  return fine ? 0 : luaL_error(L, "declare failed");
}

/* Consumes from a queue, without an answer. */
static void consume_without_answer(amqp_connection_state_t state, amqp_channel_t channel, const char *queue, bool exclusive) {
  amqp_basic_consume_t consume = {.queue = amqp_cstring_bytes(queue),
                                  .consumer_tag = amqp_cstring_bytes(queue),
                                  .no_ack = 1,
                                  .exclusive = exclusive,
                                  .nowait = 1};
  amqp_send_method(state, channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

/* connection:hold(name, count, bolted): as many mutexes as the library holds them, each on a channel of its own: an
 * exclusive queue with a consumer, and, if `bolted`, a second queue with an exclusive consumer */
static int hold(lua_State *L) {
  amqp_connection_state_t state = check(L);
  const char *name = luaL_checkstring(L, 2);
  int count = (int)luaL_checkinteger(L, 3);
  for (int i = 1; i <= count; i++) {
    char queue[256], bolt[256];
    amqp_channel_t channel = (amqp_channel_t)(i + 2); /* connect() has opened 1 and 2 */
    snprintf(queue, sizeof queue, "%s-%d-mutex", name, i);
    snprintf(bolt, sizeof bolt, "%s-%d-mutex-bolt", name, i);
    if (!amqp_channel_open(state, channel)) return luaL_error(L, "no channel");
    if (lua_toboolean(L, 4)) {
      amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(bolt), .auto_delete = 1, .nowait = 1};
      amqp_send_method(state, channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
      consume_without_answer(state, channel, bolt, true);
    }
    if (!amqp_queue_declare(state, channel, amqp_cstring_bytes(queue), 0, 0, 1, 1, amqp_empty_table))
      return luaL_error(L, "declare failed");
    consume_without_answer(state, channel, queue, false);
    amqp_maybe_release_buffers(state);
  }
  return 0;
}

/* connection:goodbye(): connection.close, and its answer */
static int goodbye(lua_State *L) {
  amqp_connection_close(check(L), AMQP_REPLY_SUCCESS);
  return close_connection(L);
}

static void push_property(lua_State *L, const amqp_table_t *all, const char *name) {
  for (int i = 0; i < all->num_entries; i++) {
    const amqp_table_entry_t *entry = &all->entries[i];
    if (entry->value.kind == AMQP_FIELD_KIND_UTF8 && entry->key.len == strlen(name) &&
        memcmp(entry->key.bytes, name, entry->key.len) == 0) {
      lua_pushlstring(L, entry->value.value.bytes.bytes, entry->value.value.bytes.len);
      return;
    }
  }
  lua_pushliteral(L, "?");
}

/* connection:server() -> the broker's name and version */
static int server(lua_State *L) {
  const amqp_table_t *all = amqp_get_server_properties(check(L));
  push_property(L, all, "product");
  lua_pushliteral(L, " ");
  push_property(L, all, "version");
  lua_concat(L, 3);
  return 1;
}

/* connection:get_nack(queue, times): gets a message and requeues it */
static int get_nack(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  for (int i = (int)luaL_checkinteger(L, 3); i > 0; i--) {
    amqp_message_t message;
    amqp_rpc_reply_t reply = amqp_basic_get(state, 1, queue, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL || reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
      return luaL_error(L, "nothing to get");
    const amqp_basic_get_ok_t *got = reply.reply.decoded;
    uint64_t tag = got->delivery_tag;
    amqp_read_message(state, 1, &message, 0);
    amqp_destroy_message(&message);
    amqp_basic_nack(state, 1, tag, 0, 1);
    amqp_maybe_release_buffers(state);
  }
  return 0;
}

/* connection:take_nack(queue, times): consumes a message and requeues it; the consumer is registered while the message
 * is held */
static int take_nack(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  amqp_basic_qos(state, 1, 0, 1, 0);
  for (int i = (int)luaL_checkinteger(L, 3); i > 0; i--) {
    char tag[32];
    amqp_envelope_t envelope;
    snprintf(tag, sizeof tag, "%d", i);
    if (!amqp_basic_consume(state, 1, queue, amqp_cstring_bytes(tag), 0, 0, 0, amqp_empty_table))
      return luaL_error(L, "consume failed");
    amqp_rpc_reply_t reply = amqp_consume_message(state, &envelope, NULL, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) return luaL_error(L, "nothing came");
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(tag), .nowait = 1};
    amqp_send_method(state, 1, AMQP_BASIC_CANCEL_METHOD, &cancel);
    amqp_basic_nack(state, 1, envelope.delivery_tag, 0, 1);
    amqp_destroy_envelope(&envelope);
    amqp_maybe_release_buffers(state);
  }
  return 0;
}

/* Waits for a message without a body, and returns its channel. */
static amqp_channel_t delivered(amqp_connection_state_t state, uint64_t *delivery) {
  for (;;) {
    amqp_frame_t frame;
    if (amqp_simple_wait_frame(state, &frame) != AMQP_STATUS_OK) abort();
    bool is_header = frame.frame_type == AMQP_FRAME_HEADER;
    bool is_delivery =
        frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_DELIVER_METHOD;
    if (is_delivery) *delivery = ((amqp_basic_deliver_t *)frame.payload.method.decoded)->delivery_tag;
    amqp_maybe_release_buffers_on_channel(state, frame.channel);
    if (is_header) return frame.channel;
  }
}

/* connection:line_up(queue, consumers, single, expires): declares a queue with one message, and consumes from it on so
 * many channels. `single`: with a single active consumer. `expires`: with x-expires */
static int line_up(lua_State *L) {
  amqp_connection_state_t state = check(L);
  amqp_bytes_t queue = amqp_cstring_bytes(luaL_checkstring(L, 2));
  amqp_table_entry_t entries[] = {
      {.key = amqp_cstring_bytes("x-single-active-consumer"),
       .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = lua_toboolean(L, 4)}},
      {.key = amqp_cstring_bytes("x-expires"), .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 600000}}};
  amqp_table_t arguments = {.num_entries = lua_toboolean(L, 5) ? 2 : 1, .entries = entries};
  if (!amqp_queue_declare(state, 1, queue, 0, 1, 0, 0, arguments)) return luaL_error(L, "declare failed");
  amqp_basic_publish(state, 1, amqp_empty_bytes, queue, 0, 0, NULL, amqp_empty_bytes);
  for (int i = (int)luaL_checkinteger(L, 3); i > 0; i--) {
    amqp_channel_t channel = (amqp_channel_t)(i + 2); /* connect() has opened 1 and 2 */
    bool fine = amqp_channel_open(state, channel) && amqp_basic_qos(state, channel, 0, 1, 0) &&
                amqp_basic_consume(state, channel, queue, amqp_cstring_bytes("1"), 0, 0, 0, amqp_empty_table);
    if (!fine) return luaL_error(L, "consume failed");
  }
  return 0;
}

/* connection:pass_on(times): the consumer that has the message leaves the line and gives it back, and the next one gets
 * it, so many times */
static int pass_on(lua_State *L) {
  amqp_connection_state_t state = check(L);
  for (int i = (int)luaL_checkinteger(L, 2); i > 0; i--) {
    uint64_t delivery = 0;
    amqp_channel_t channel = delivered(state, &delivery);
    amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes("1"), .nowait = 1};
    amqp_send_method(state, channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
    amqp_basic_nack(state, channel, delivery, 0, 1);
  }
  return 0;
}

static int nothing(lua_State *L) {
  luaL_checkudata(L, 1, TYPE);
  lua_pushboolean(L, 1);
  return 1;
}

/* bare.kill(pid), bare.stop(pid): SIGKILL and SIGSTOP, without a shell to start */
static int send_signal(lua_State *L, int number) {
  if (kill((pid_t)luaL_checkinteger(L, 1), number) != 0) return luaL_error(L, "no such process");
  return 0;
}

static int kill_process(lua_State *L) { return send_signal(L, SIGKILL); }

static int stop_process(lua_State *L) { return send_signal(L, SIGSTOP); }

/* bare.sleep(seconds) */
static int sleep_a_while(lua_State *L) {
  double seconds = luaL_checknumber(L, 1);
  struct timespec time = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
  return 0;
}

/* bare.now() -> seconds, by a clock that all processes share */
static int now(lua_State *L) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  lua_pushnumber(L, (double)time.tv_sec + (double)time.tv_nsec / 1e9);
  return 1;
}

/* bare.version() -> the version of rabbitmq-c */
static int version(lua_State *L) {
  lua_pushstring(L, amqp_version());
  return 1;
}

/* bare.memory() -> resident bytes, heap bytes in use */
static int memory(lua_State *L) {
  struct mallinfo2 info = mallinfo2();
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) return luaL_error(L, "no /proc/self/statm");
  fclose(file);
  lua_pushnumber(L, (double)resident * (double)sysconf(_SC_PAGESIZE));
  lua_pushnumber(L, (double)info.uordblks + (double)info.hblkhd);
  return 2;
}

int luaopen_bare(lua_State *L) {
  static const luaL_Reg methods[] = {{"declare_delete", declare_delete},
                                     {"declare_bind_delete", declare_bind_delete},
                                     {"declare", declare},
                                     {"delete", delete},
                                     {"publish", publish},
                                     {"acquire_in_turn", acquire_in_turn},
                                     {"occupy", occupy},
                                     {"server", server},
                                     {"hold", hold},
                                     {"goodbye", goodbye},
                                     {"get_nack", get_nack},
                                     {"take_nack", take_nack},
                                     {"line_up", line_up},
                                     {"pass_on", pass_on},
                                     {"nothing", nothing},
                                     {"close", close_connection},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {{"connect", connect},   {"now", now},
                                       {"memory", memory},     {"kill", kill_process},
                                       {"stop", stop_process}, {"sleep", sleep_a_while},
                                       {"version", version},   {NULL, NULL}};
  luaL_newmetatable(L, TYPE);
  lua_pushcfunction(L, close_connection);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  for (const luaL_Reg *method = methods; method->name; method++) {
    memset(lua_newuserdata(L, sizeof(uint64_t)), 0, sizeof(uint64_t)); /* publish counts delivery tags in it */
    lua_pushcclosure(L, method->func, 1);
    lua_setfield(L, -2, method->name);
  }
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_newtable(L);
  for (const luaL_Reg *function = functions; function->name; function++) {
    lua_pushcfunction(L, function->func);
    lua_setfield(L, -2, function->name);
  }
  return 1;
}
