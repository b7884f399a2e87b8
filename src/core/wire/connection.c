/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/connection.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/wire/channel.h"
#include "core/wire/handshake.h"
#include "core/wire/heartbeat.h"

#define FRAMES_AT_ONCE 10000

static void changed(al_link *link, al_link_change change) {
  if (link->changed) link->changed(link->watcher, link, change);
}

/* ---- the beginning and the end of a connection ------------------------------------------------------------------- */

static void forget_parted(al_link *link) {
  if (link->parted) link->parted->kind->close(link->parted);
  link->parted = NULL;
}

void al_connection_attach(al_link *link, al_port *port, int64_t now, int64_t deadline) {
  forget_parted(link);
  link->wanted = false;
  link->blocked = false;
  link->has_last_words = false;
  link->version = 0;
  link->port = port;
  al_link_enter(link, AL_LINK_GREETING);
  link->now = link->sent_at = link->heard_at = link->pulsed_at = now;
  link->answered_at = 0;
  link->deadline = deadline;
  link->channel_max = 0;
  link->code = AL_OK;
  link->why[0] = '\0';
  link->seen_cluster[0] = '\0';
  AL_TRACE(link->trace, "%s: connected to %s:%d", link->role, al_link_place(link), link->settings->port);
  port->kind->send_header(port);
}

/* Writes what is wrong with a place, with its address in front unless `why` holds the address. */
static void describe_place(const al_link *link, char words[AL_MESSAGE_SIZE]) {
  char place[sizeof link->settings->host + 16];
  if (link->addresses && link->addresses->count > 1)
    snprintf(place, sizeof place, "%s", al_link_place(link));
  else
    snprintf(place, sizeof place, "%s:%d", link->settings->host, link->settings->port);
  if (strstr(link->why, place))
    snprintf(words, AL_MESSAGE_SIZE, "%s", link->why);
  else
    snprintf(words, AL_MESSAGE_SIZE, "%.200s: %.300s", place, link->why);
}

static void pause_unless_it_lasted(al_link *link) {
  if (link->was_open && link->now - link->opened_at >= link->reconnect.most)
    link->reconnect = AL_BACKOFF_RECONNECT;
  else
    al_link_pause(link);
}

/* The connection is over. If the program must still fetch our answer to the broker's connection.close, the port is
 * kept. */
static void part(al_link *link) {
  al_port *port = link->port;
  link->port = NULL;
  if (!port) return;
  if (link->has_last_words && port->kind->is_fetched)
    link->parted = port;
  else
    port->kind->close(port);
}

void al_connection_free(al_link *link) {
  forget_parted(link);
  al_link_end_attempt(link);
  al_nodes_free(link->nodes);
  link->nodes = NULL;
}

/* True if the connection failed before its handshake was done, and another place is left to try. */
static bool may_go_on(const al_link *link) {
  bool was_tried = link->state != AL_LINK_IDLE && link->state != AL_LINK_DOWN;
  return was_tried && !link->was_open && al_link_places_left(link) > 1 && al_nodes_go_on(link->code);
}

static void go_on(al_link *link) {
  char words[AL_MESSAGE_SIZE];
  size_t length = strlen(link->tried_words);
  describe_place(link, words);
  snprintf(link->tried_words + length, sizeof link->tried_words - length, "%s; ", words);
  part(link);
  al_link_enter(link, AL_LINK_IDLE);
  link->wanted =
      true; /* before changed(): it steps the operations, which would otherwise begin another attempt */
  link->due_at = link->now;
  changed(link, AL_LINK_WENT_ON);
  al_link_go_on(link);
}

/* If there are several places: completes `why` by the one that failed, or by all of them if all have failed. */
static void tell_of_places(al_link *link) {
  char words[AL_MESSAGE_SIZE];
  if (!al_link_has_places(link) || link->was_open || link->code == AL_CLOSED || link->code == AL_URL) return;
  describe_place(link, words);
  if (al_nodes_go_on(link->code))
    snprintf(link->why, sizeof link->why, "none of %zu hosts: %.230s%.230s", link->tried_places + 1,
             link->tried_words, words);
  else
    snprintf(link->why, sizeof link->why, "%s", words);
}

static void link_down(al_link *link) {
  link->was_open = link->state == AL_LINK_OPEN || link->state == AL_LINK_CLOSING;
  if (link->was_open) link->cluster->open--;
  if (may_go_on(link)) {
    go_on(link);
    return;
  }
  tell_of_places(link);
  al_link_end_attempt(link);
  al_link_enter(link, AL_LINK_DOWN);
  link->wanted = false;
  link->blocked = false;
  link->certain_until = 0;
  pause_unless_it_lasted(link);
  part(link);
  al_channels_down(link);
  changed(link, AL_LINK_WENT_DOWN);
}

void al_connection_fail(al_link *link, al_code code, const char *why) {
  link->code = code;
  snprintf(link->why, sizeof link->why, "%s", why);
  al_link_enter(link, AL_LINK_GREETING); /* so that this end is reported like that of any other attempt */
  link_down(link);
}

void al_connection_abort(al_link *link, al_code code, const char *format, ...) {
  if (link->state == AL_LINK_DOWN) return;
  va_list arguments;
  va_start(arguments, format);
  link->code = code;
  vsnprintf(link->why, sizeof link->why, format, arguments);
  va_end(arguments);
  link_down(link);
}

void al_connection_close(al_link *link, int64_t deadline) {
  amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS,
                                   .reply_text = amqp_cstring_bytes("goodbye")};
  link->wanted = false;
  if (link->state != AL_LINK_OPEN) {
    if (link->state != AL_LINK_CLOSING) al_connection_abort(link, AL_CLOSED, "the connection was closed");
    return;
  }
  al_link_method(link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close);
  al_link_enter(link, AL_LINK_CLOSING);
  link->deadline = deadline;
}

/* ---- what arrives on channel 0 ---------------------------------------------------------------------------------- */

static void closed_by_broker(al_link *link, const amqp_connection_close_t *close) {
  amqp_connection_close_ok_t ok = {0};
  al_link_method(link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
  link->port->kind->flush(link->port);
  link->has_last_words = true;
  link->has_broken = close->reply_code == AMQP_INTERNAL_ERROR;
  al_code code = al_handshake_refusal(link->state, close);
  bool is_nameless = code == AL_VHOST && link->settings->vhost[0] == '\0';
  char who[AL_MESSAGE_SIZE] = "";
  if (code == AL_AUTH)
    snprintf(who, sizeof who, " (user \"%.80s\", %.120s:%d)", link->settings->user, link->settings->host,
             link->settings->port);
  al_connection_abort(
      link, code, "the broker closed the connection%s: %.*s%s", who, (int)close->reply_text.len,
      (const char *)close->reply_text.bytes,
      is_nameless ? " (a URL that ends with \"/\" names the virtual host \"\"; without it, it is \"/\")"
                  : "");
}

static void blocked(al_link *link, bool is_blocked) {
  if (link->blocked == is_blocked) return;
  link->blocked = is_blocked;
  changed(link, is_blocked ? AL_LINK_BLOCKED : AL_LINK_UNBLOCKED);
}

static void shake_hands(al_link *link, const amqp_frame_t *frame) {
  char why[AL_MESSAGE_SIZE];
  al_code code = al_handshake(link, frame, why);
  if (code != AL_OK) al_connection_abort(link, code, "%s", why);
}

static void connection_method(al_link *link, const amqp_frame_t *frame) {
  const amqp_method_t *method = &frame->payload.method;
  switch (method->id) {
    case AMQP_CONNECTION_CLOSE_METHOD:
      closed_by_broker(link, method->decoded);
      return;
    case AMQP_CONNECTION_CLOSE_OK_METHOD:
      al_connection_abort(link, AL_CLOSED, "the connection was closed");
      return;
    case AMQP_CONNECTION_BLOCKED_METHOD:
      blocked(link, true);
      return;
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
      blocked(link, false);
      return;
    default:
      if (link->state == AL_LINK_OPEN || link->state == AL_LINK_CLOSING) return;
      shake_hands(link, frame);
      if (link->state != AL_LINK_OPEN) return;
      link->opened_at = link->now;
      link->opened++;
      link->cluster->good = link->node;
      memcpy(link->cluster->good_address, link->last_address, sizeof link->last_address);
      al_link_end_attempt(link);
      changed(link, AL_LINK_OPENED);
  }
}

static void dispatch(al_link *link, const amqp_frame_t *frame) {
  if (link->trace) al_trace_frame(link->trace, link->role, "<", frame);
  if (frame->frame_type == AL_PROTOCOL_HEADER) {
    const amqp_frame_t *f = frame;
    al_connection_abort(link, AL_PROTOCOL, "the broker speaks another protocol (AMQP %d.%d), not AMQP 0-9-1",
                        f->payload.protocol_header.transport_low,
                        f->payload.protocol_header.protocol_version_major);
    return;
  }
  if (frame->frame_type == AMQP_FRAME_HEARTBEAT) return;
  if (frame->channel == 0 && frame->frame_type == AMQP_FRAME_METHOD) {
    connection_method(link, frame);
    return;
  }
  bool open = link->state == AL_LINK_OPEN || link->state == AL_LINK_CLOSING;
  if (!open || !al_channel_frame(link, frame))
    al_connection_abort(link, AL_PROTOCOL, "the broker sent a frame that has no place on channel %d",
                        frame->channel);
}

/* The time is read again after reading bytes. This process may have been stopped since the pump began, and what the
 * bytes say it holds may belong to another client by now. */
static al_port_state next(al_link *link, amqp_frame_t *frame) {
  al_port *port = link->port;
  al_port_state state = port->kind->next(port, frame);
  if (!port->heard) return state;
  port->heard = false;
  if (link->tell_time) link->tell_time(link->watcher);
  link->heard_at = link->now;
  return state;
}

/* Reads a limited number of frames: a broker that never pauses must not keep deadlines from being checked. */
static void read_some(al_link *link) {
  amqp_frame_t frame;
  link->has_more = false;
  for (int left = FRAMES_AT_ONCE; link->port; left--) {
    link->has_more = left == 0;
    if (link->has_more) return;
    const al_port *port = link->port;
    al_port_state state = next(link, &frame);
    if (state == AL_PORT_MORE) return;
    if (state == AL_PORT_PART) continue;
    if (state == AL_PORT_DOWN) {
      al_code code = link->state == AL_LINK_CLOSING ? AL_CLOSED : port->code;
      char why[sizeof port->why];
      memcpy(why, port->why, sizeof why);
      al_connection_abort(link, code, "%s", why);
      return;
    }
    dispatch(link, &frame);
  }
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

static bool is_shaking_hands(const al_link *link) {
  return link->state == AL_LINK_GREETING || link->state == AL_LINK_TUNING || link->state == AL_LINK_OPENING;
}

static void keep_time(al_link *link) {
  bool is_bounded = is_shaking_hands(link) || link->state == AL_LINK_CLOSING;
  if (is_bounded && link->now >= link->deadline) {
    bool closing = link->state == AL_LINK_CLOSING;
    al_connection_abort(link, closing ? AL_CLOSED : AL_UNREACHABLE, "%s",
                        closing ? "the connection was closed"
                                : "the broker did not finish the AMQP handshake in time");
  }
  if (link->state != AL_LINK_OPEN) return;
  if (al_heartbeat_is_missed(link)) {
    al_connection_abort(link, AL_UNREACHABLE, "nothing came from the broker for two heartbeats");
    return;
  }
  al_heartbeat_pulse(link);
  if (link->now >= link->overdue_at) al_channels_sweep(link);
  al_heartbeat_send(link);
}

void al_connection_pump(al_link *link, int64_t now) {
  link->now = now;
  read_some(link);
  if (link->port) keep_time(link);
  if (link->port) link->port->kind->flush(link->port);
}

int64_t al_connection_wake(const al_link *link) {
  bool is_failing = link->port && link->port->code != AL_OK; /* the next read returns AL_PORT_DOWN */
  if (link->has_more || is_failing) return link->now;
  if (is_shaking_hands(link) || link->state == AL_LINK_CLOSING) return link->deadline;
  if (link->wanted && link->now < link->due_at) return link->due_at;
  return link->state == AL_LINK_OPEN ? al_heartbeat_wake(link) : AL_NEVER;
}
