/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A port over rabbitmq-c's own sockets, TCP or TLS, which it opens close-on-exec and non-blocking.
 *
 * Sending through rabbitmq-c waits without a limit when the peer reads no more, so frames are queued as bytes. A plain
 * socket is then given as many as it takes, all in one call. Under TLS, which is rabbitmq-c's business, frames are handed
 * over one by one, and only while the socket says it takes some: it then has room for more than we write between two looks.
 * Heartbeats are the core's; rabbitmq-c's own are off. */
#include "transport/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/output.h"
#include "transport/tls.h"

#if __has_include(<rabbitmq-c/tcp_socket.h>)
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp_tcp_socket.h>
#endif

#define FIRST_FRAME_MAX 8192 /* of what we send before tuning */
#define BYTES_BETWEEN_LOOKS 2048
#define NO_MEMORY "there is not enough memory for the connection"

typedef struct socket_port {
  al_port port;
  amqp_connection_state_t state;
  const al_fork *fork;
  al_output out;
  amqp_pool_t pool; /* for the frame being handed to rabbitmq-c */
  int frame_max;
  bool is_tls, is_down, has_heard;
} socket_port;

/* ---- the port --------------------------------------------------------------------------------------------------- */

static void down(socket_port *self, al_code code, const char *why) {
  if (self->is_down) return;
  self->is_down = true;
  self->port.code = code;
  snprintf(self->port.why, sizeof self->port.why, "%s", why);
}

/* A status of rabbitmq-c for a connection that was open. */
static void down_status(socket_port *self, int status) {
  switch (status) {
    case AMQP_STATUS_NO_MEMORY:
      down(self, AL_NO_MEMORY, NO_MEMORY);
      break;
    case AMQP_STATUS_BAD_AMQP_DATA:
    case AMQP_STATUS_UNKNOWN_METHOD:
    case AMQP_STATUS_UNKNOWN_CLASS:
      down(self, AL_PROTOCOL, "the peer does not speak AMQP 0-9-1");
      break;
    case AMQP_STATUS_CONNECTION_CLOSED:
    case AMQP_STATUS_SOCKET_CLOSED:
      /* So does a proxy whose broker is down, as well as whoever is no broker. */
      down(self, AL_UNREACHABLE,
           self->has_heard ? "the broker closed the connection without a word"
                           : "the peer closed the connection instead of speaking AMQP 0-9-1");
      break;
    case AMQP_STATUS_SOCKET_ERROR:
      down(self, AL_UNREACHABLE, strerror(errno));
      break;
    default:
      down(self, AL_UNREACHABLE, amqp_error_string2(status));
  }
}

static bool is_ready(const socket_port *self, short events) {
  struct pollfd one = {.fd = amqp_get_sockfd(self->state), .events = events};
  return poll(&one, 1, 0) > 0 && one.revents != 0;
}

static void socket_send_header(al_port *port) {
  socket_port *self = (socket_port *)port;
  int status = amqp_send_header(self->state); /* 8 bytes into an empty socket: cannot wait */
  if (status != AMQP_STATUS_OK) down_status(self, status);
}

static void socket_send(al_port *port, const amqp_frame_t *frame) {
  socket_port *self = (socket_port *)port;
  if (self->is_down) return;
  if (!al_output_frame(&self->out, frame, self->frame_max))
    down(self, AL_NO_MEMORY, "there is not enough memory for a frame");
}

/* A TLS port answers our greeting with a TLS alert, too short to be taken for a frame: look before rabbitmq-c reads. */
static bool answers_in_tls(const socket_port *self) {
  unsigned char first = 0;
  return recv(amqp_get_sockfd(self->state), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == 0x15;
}

/* Is there anything to be had from rabbitmq-c? Asking the socket is cheaper than reading in vain; but OpenSSL may hold
 * bytes that no socket shows. */
static bool may_read(socket_port *self) {
  if (amqp_data_in_buffer(self->state)) return true;
  if (!is_ready(self, POLLIN)) return self->is_tls;
  self->port.heard = true;
  return true;
}

static al_port_state socket_next(al_port *port, amqp_frame_t *frame) {
  socket_port *self = (socket_port *)port;
  struct timeval now = {0, 0};
  if (self->is_down || al_fork_happened(self->fork)) return self->is_down ? AL_PORT_DOWN : AL_PORT_MORE;
  if (!may_read(self)) return AL_PORT_MORE;
  if (!self->has_heard && !self->is_tls && answers_in_tls(self)) {
    down(self, AL_TLS, "the peer speaks TLS on this port: use amqps://");
    return AL_PORT_DOWN;
  }
  int status = amqp_simple_wait_frame_noblock(self->state, frame, &now);
  if (status == AMQP_STATUS_OK) {
    self->has_heard = true;
    self->port.heard = true; /* also with its buffer: it may have read on from the socket for the rest */
    return AL_PORT_FRAME;
  }
  if (status == AMQP_STATUS_TIMEOUT) return AL_PORT_MORE;
  down_status(self, status);
  return AL_PORT_DOWN;
}

static void socket_release(al_port *port, amqp_channel_t channel) {
  amqp_maybe_release_buffers_on_channel(((socket_port *)port)->state, channel);
}

static void socket_tune(al_port *port, int channel_max, int frame_max) {
  socket_port *self = (socket_port *)port;
  self->frame_max = frame_max;
  int status = amqp_tune_connection(self->state, channel_max, frame_max, 0);
  if (status != AMQP_STATUS_OK) down_status(self, status);
}

static uint64_t take(const uint8_t *at, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number = number << 8 | at[i];
  return number;
}

/* Our own encoding back into a frame for rabbitmq-c to send; its length on the wire. */
static size_t decode_own(socket_port *self, const uint8_t *at, amqp_frame_t *frame) {
  size_t length = (size_t)take(at + 3, 4);
  const uint8_t *payload = at + 7;
  int status = AMQP_STATUS_OK;
  frame->frame_type = at[0];
  frame->channel = (amqp_channel_t)take(at + 1, 2);
  if (frame->frame_type == AMQP_FRAME_METHOD) {
    amqp_bytes_t encoded = {.len = length - 4, .bytes = (void *)(payload + 4)};
    frame->payload.method.id = (amqp_method_number_t)take(payload, 4);
    status =
        amqp_decode_method(frame->payload.method.id, &self->pool, encoded, &frame->payload.method.decoded);
  } else if (frame->frame_type == AMQP_FRAME_HEADER) {
    amqp_bytes_t encoded = {.len = length - 12, .bytes = (void *)(payload + 12)};
    frame->payload.properties.class_id = (uint16_t)take(payload, 2);
    frame->payload.properties.body_size = take(payload + 4, 8);
    status = amqp_decode_properties(frame->payload.properties.class_id, &self->pool, encoded,
                                    &frame->payload.properties.decoded);
  } else if (frame->frame_type == AMQP_FRAME_BODY) {
    frame->payload.body_fragment = (amqp_bytes_t){.len = length, .bytes = (void *)payload};
  }
  if (status < 0) down_status(self, status);
  return length + 8;
}

static void cork(const socket_port *self, int on) {
  setsockopt(amqp_get_sockfd(self->state), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

static void flush_tls(socket_port *self) {
  size_t since_look = BYTES_BETWEEN_LOOKS;
  cork(self, 1); /* one packet for what belongs together */
  while (!self->is_down && self->out.start < self->out.end) {
    amqp_frame_t frame;
    if (since_look >= BYTES_BETWEEN_LOOKS) {
      if (!is_ready(self, POLLOUT)) break;
      since_look = 0;
    }
    size_t length = decode_own(self, self->out.bytes + self->out.start, &frame);
    int status = self->is_down ? AMQP_STATUS_OK : amqp_send_frame(self->state, &frame);
    recycle_amqp_pool(&self->pool);
    if (status != AMQP_STATUS_OK) down_status(self, status);
    al_output_consume(&self->out, length);
    since_look += length;
  }
  cork(self, 0);
}

static void flush_plain(socket_port *self) {
  al_output *out = &self->out;
  while (!self->is_down && out->start < out->end) {
    ssize_t sent = send(amqp_get_sockfd(self->state), out->bytes + out->start, out->end - out->start,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
      al_output_consume(out, (size_t)sent);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return;
    else if (errno != EINTR)
      down_status(self, AMQP_STATUS_SOCKET_ERROR);
  }
}

static void socket_flush(al_port *port) {
  socket_port *self = (socket_port *)port;
  if (self->is_down || self->out.start == self->out.end || al_fork_happened(self->fork)) return;
  if (self->is_tls)
    flush_tls(self);
  else
    flush_plain(self);
}

static void socket_close(al_port *port) {
  socket_port *self = (socket_port *)port;
  if (al_fork_happened(self->fork)) { /* the parent's TLS must not be told goodbye: the rest is given up */
    close(amqp_get_sockfd(self->state));
    return;
  }
  amqp_destroy_connection(self->state);
  al_output_free(&self->out);
  empty_amqp_pool(&self->pool);
  free(self);
}

static const al_port_kind socket_kind = {.send_header = socket_send_header,
                                         .send = socket_send,
                                         .next = socket_next,
                                         .release = socket_release,
                                         .tune = socket_tune,
                                         .flush = socket_flush,
                                         .close = socket_close};

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static struct timeval timeval_of(int64_t time) {
  return (struct timeval){.tv_sec = time / AL_SECOND, .tv_usec = time % AL_SECOND / 1000};
}

static al_code connect_refusal(int status, amqp_socket_t *socket, const al_settings *s, char why[256]) {
  const char *complaint = s->tls ? al_tls_complaint(socket) : NULL;
  switch (status) {
    case AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED:
      snprintf(why, 256, "the name \"%.200s\" cannot be resolved", s->host);
      return AL_UNREACHABLE;
    case AMQP_STATUS_TIMEOUT:
      snprintf(why, 256, "%.180s:%d did not answer in time", s->host, s->port);
      return AL_UNREACHABLE;
    case AMQP_STATUS_NO_MEMORY:
      snprintf(why, 256, NO_MEMORY);
      return AL_NO_MEMORY;
    case AMQP_STATUS_SSL_ERROR:
    case AMQP_STATUS_SSL_CONNECTION_FAILED:
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
      snprintf(why, 256,
               complaint ? "the certificate of %.100s:%d is not accepted: %.100s"
                         : "no TLS with %.100s:%d: %.100s",
               s->host, s->port, complaint ? complaint : al_tls_words());
      return AL_TLS;
    default:
      if (errno == EMFILE || errno == ENFILE) {
        snprintf(why, 256, "%s", strerror(errno));
        return AL_LIMIT;
      }
      snprintf(why, 256, "no broker at %.180s:%d", s->host, s->port);
      return AL_UNREACHABLE;
  }
}

al_port *al_socket_connect(const al_settings *settings, int64_t patience, const al_fork *fork, al_code *code,
                           char why[256]) {
  struct timeval timeout = timeval_of(patience);
  socket_port *self = calloc(1, sizeof *self);
  *code = AL_NO_MEMORY;
  snprintf(why, 256, NO_MEMORY);
  if (!self) return NULL;
  self->port.kind = &socket_kind;
  self->fork = fork;
  self->is_tls = settings->tls;
  self->frame_max = FIRST_FRAME_MAX;
  init_amqp_pool(&self->pool, 1024);
  self->state = amqp_new_connection();
  amqp_socket_t *socket = NULL;
  if (self->state) {
    errno = 0; /* TLS has no other word for a want of memory */
    socket = settings->tls ? al_tls_socket(self->state, settings, why) : amqp_tcp_socket_new(self->state);
    *code = settings->tls && errno != ENOMEM ? AL_TLS : AL_NO_MEMORY;
  }
  if (socket) {
    errno = 0; /* rabbitmq-c does not say it otherwise when no descriptor is left */
    int status = amqp_socket_open_noblock(socket, settings->host, settings->port, &timeout);
    if (status == AMQP_STATUS_OK) return &self->port;
    *code = connect_refusal(status, socket, settings, why);
  }
  if (self->state) amqp_destroy_connection(self->state);
  empty_amqp_pool(&self->pool);
  free(self);
  return NULL;
}

int al_socket_fd(const al_port *port) { return amqp_get_sockfd(((const socket_port *)port)->state); }

bool al_socket_has_unsent(const al_port *port) {
  const al_output *out = &((const socket_port *)port)->out;
  return out->start < out->end;
}
