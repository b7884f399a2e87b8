/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * rabbitmq-c opens the socket, close-on-exec and non-blocking; it closes a socket of TLS. This file reads and writes,
 * as much as the socket gives or takes at once, because rabbitmq-c's own functions may not return. Its reading does not
 * return while the peer never pauses: it handles heartbeats itself, in a loop. Its writing waits without a limit while the
 * peer does not read. The core sends the heartbeats; those of rabbitmq-c are off. */
#include "transport/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/backoff.h"
#include "transport/descriptors.h"
#include "transport/frames.h"
#include "transport/system.h"
#include "transport/tls.h"

#if __has_include(<rabbitmq-c/tcp_socket.h>)
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp_tcp_socket.h>
#endif

#define READ_AT_ONCE 16384 /* the size of a TLS record */
#define TLS_ALERT 0x15     /* the first byte of a TLS alert */

typedef struct socket_port {
  al_frames frames;
  amqp_connection_state_t opener; /* rabbitmq-c's connection, with the socket; NULL: it has none any more */
  const al_fork *fork;
  int fd; /* the socket's, listed in descriptors.h */
  al_tls tls;
  bool is_tls, has_heard;
} socket_port;

/* ---- the port --------------------------------------------------------------------------------------------------- */

/* Like recv() and send(). If errno is EPROTO, OpenSSL has the reason. */
static ssize_t receive(socket_port *self, void *bytes, size_t room) {
  return self->is_tls ? al_tls_read(&self->tls, bytes, room) : recv(self->fd, bytes, room, MSG_DONTWAIT);
}

static ssize_t transmit(socket_port *self, const void *bytes, size_t length) {
  return self->is_tls ? al_tls_write(&self->tls, bytes, length)
                      : send(self->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

static void broken(socket_port *self, int error) {
  al_frames_down(&self->frames, AL_UNREACHABLE,
                 self->is_tls && error == EPROTO ? al_tls_words(&self->tls) : strerror(error));
}

static void hung_up(socket_port *self) {
  /* The peer may be a proxy whose broker is down, or no broker at all. */
  al_frames_down(&self->frames, AL_UNREACHABLE,
                 self->has_heard ? "the broker closed the connection without giving a reason"
                                 : "the peer closed the connection instead of speaking AMQP 0-9-1");
}

/* Returns true if bytes came, or the end of the connection. */
static bool read_some(socket_port *self) {
  uint8_t bytes[READ_AT_ONCE];
  const al_output *in = &self->frames.in.bytes;
  bool begins = !self->has_heard && in->start == in->end; /* these are the first bytes */
  ssize_t length = receive(self, bytes, sizeof bytes);
  if (length < 0 && is_for_later(errno)) return false;
  if (length < 0)
    broken(self, errno);
  else if (length == 0)
    hung_up(self);
  else if (begins && !self->is_tls && bytes[0] == TLS_ALERT)
    al_frames_down(&self->frames, AL_TLS, "the peer speaks TLS on this port: use amqps://");
  else
    al_frames_feed(&self->frames, bytes, (size_t)length);
  return true;
}

static al_port_state socket_next(al_port *port, amqp_frame_t *frame) {
  socket_port *self = (socket_port *)port;
  if (al_fork_happened(self->fork)) return self->frames.is_down ? AL_PORT_DOWN : AL_PORT_MORE;
  al_port_state state = al_frames_next(&self->frames, frame);
  if (state == AL_PORT_FRAME) self->has_heard = true;
  return state == AL_PORT_MORE && read_some(self) ? AL_PORT_PART : state;
}

static void socket_flush(al_port *port) {
  socket_port *self = (socket_port *)port;
  al_output *out = &self->frames.out;
  if (al_fork_happened(self->fork)) return;
  while (!self->frames.is_down && out->start < out->end) {
    ssize_t sent = transmit(self, out->bytes + out->start, out->end - out->start);
    if (sent > 0)
      al_output_consume(out, (size_t)sent);
    else if (sent == 0)
      hung_up(self);
    else if (!is_for_later(errno))
      broken(self, errno);
    else if (errno != EINTR)
      return;
  }
}

static int duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, AL_DESCRIPTORS_FIRST); }

/* The descriptor is removed from the list before it is closed, as another file may get its number after that. If
 * another thread forks in between, its child has a copy, which would keep the connection. So shutdown() ends the
 * connection for all copies. It comes after the closing message of TLS, through a duplicate of the descriptor. If no
 * descriptor is left for the duplicate, it comes before. */
static void disconnect(socket_port *self) {
  int copy = self->is_tls ? duplicate(self->fd) : -1;
  if (copy < 0) shutdown(self->fd, SHUT_RDWR);
  al_descriptors_remove(self->fd);
  if (!self->is_tls) close(self->fd);
  amqp_destroy_connection(self->opener);
  if (copy < 0) return;
  shutdown(copy, SHUT_RDWR);
  close(copy);
}

static void socket_close(al_port *port) {
  socket_port *self = (socket_port *)port;
  if (al_fork_happened(self->fork))
    return; /* the connection is the parent's, and the number may be another file's in the child */
  disconnect(self);
  al_frames_free(&self->frames);
  free(self);
}

static const al_port_kind socket_kind = {.send_header = al_frames_send_header,
                                         .send = al_frames_send,
                                         .next = socket_next,
                                         .flush = socket_flush,
                                         .close = socket_close};

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static struct timeval timeval_of(int64_t time) {
  return (struct timeval){.tv_sec = time / AL_SECOND, .tv_usec = time % AL_SECOND / 1000};
}

static bool lacks_descriptor(char why[256]) {
  bool lacks = errno == EMFILE || errno == ENFILE;
  if (lacks) snprintf(why, 256, "%s", strerror(errno));
  return lacks;
}

static al_code connect_refusal(int status, const al_tls *tls, const al_settings *s, char why[256]) {
  const char *complaint = s->tls ? al_tls_complaint(tls) : NULL;
  bool is_late = s->tls && !complaint && al_system_now() >= tls->deadline; /* see tls.h */
  bool is_cut = s->tls && !complaint && al_tls_is_cut(tls);
  switch (is_late ? AMQP_STATUS_TIMEOUT : status) {
    case AMQP_STATUS_TIMEOUT:
      snprintf(why, 256, "%.180s:%d did not answer in time", s->host, s->port);
      return AL_UNREACHABLE;
    case AMQP_STATUS_NO_MEMORY:
      snprintf(why, 256, AL_FRAMES_NO_MEMORY);
      return AL_NO_MEMORY;
    case AMQP_STATUS_SSL_ERROR:
    case AMQP_STATUS_SSL_CONNECTION_FAILED:
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
      snprintf(why, 256,
               complaint ? "the certificate of %.100s:%d is not accepted: %.100s"
                         : "no TLS with %.100s:%d: %.100s",
               s->host, s->port, complaint ? complaint : al_tls_words(tls));
      return is_cut ? AL_UNREACHABLE : AL_TLS;
    default:
      if (lacks_descriptor(why)) return AL_LIMIT;
      snprintf(why, 256, "no broker at %.180s:%d", s->host, s->port);
      return AL_UNREACHABLE;
  }
}

/* rabbitmq-c's connection takes 200 KiB. Only TLS needs it once the socket is connected. */
static int own(socket_port *self) {
  self->fd = amqp_get_sockfd(self->opener);
  if (!self->is_tls) {
    self->fd = duplicate(self->fd);
    amqp_destroy_connection(self->opener);
    self->opener = NULL;
  }
  if (self->fd < 0) return AMQP_STATUS_SOCKET_ERROR;
  if (al_descriptors_add(self->fd)) return AMQP_STATUS_OK;
  if (!self->is_tls) close(self->fd);
  return AMQP_STATUS_NO_MEMORY;
}

al_port *al_socket_connect(const al_settings *settings, const char *address, int64_t allowed,
                           const al_fork *fork, al_code *code, char why[256]) {
  struct timeval timeout = timeval_of(allowed);
  socket_port *self = calloc(1, sizeof *self);
  *code = AL_NO_MEMORY;
  snprintf(why, 256, AL_FRAMES_NO_MEMORY);
  if (!self || !(self->opener = amqp_new_connection())) {
    free(self);
    return NULL;
  }
  al_frames_init(&self->frames, &socket_kind);
  self->fork = fork;
  self->is_tls = settings->tls;
  errno = 0; /* TLS reports a lack of memory only by errno */
  int64_t deadline = al_deadline_after(al_system_now(), allowed);
  amqp_socket_t *socket = settings->tls ? al_tls_socket(&self->tls, self->opener, settings, deadline, why)
                                        : amqp_tcp_socket_new(self->opener);
  *code = settings->tls && errno != ENOMEM ? AL_TLS : AL_NO_MEMORY;
  if (!socket && lacks_descriptor(why)) *code = AL_LIMIT;
  if (socket) {
    errno = 0; /* rabbitmq-c reports only by errno that no descriptor is left */
    int status = amqp_socket_open_noblock(socket, address, settings->port, &timeout);
    if (status == AMQP_STATUS_OK) status = own(self);
    if (status == AMQP_STATUS_OK) return &self->frames.port;
    *code = connect_refusal(status, &self->tls, settings, why);
  }
  amqp_destroy_connection(self->opener);
  free(self);
  return NULL;
}

int al_socket_fd(const al_port *port) { return ((const socket_port *)port)->fd; }

bool al_socket_has_unsent(const al_port *port) {
  const socket_port *self = (const socket_port *)port;
  const al_output *out = &self->frames.out;
  return (out->start < out->end && !self->tls.awaits_input) || self->tls.awaits_output;
}

bool al_socket_reads(const al_port *port) { return !((const socket_port *)port)->tls.awaits_output; }
