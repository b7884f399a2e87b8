/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A port of the native transport whose peer begins a TLS renegotiation (TLS 1.2) when the socket takes no more bytes.
 * It is built with the transport's own sources. It prints, line by line, how many frames arrived, and whether the port
 * waits for the socket to become writable: when there is nothing to send, while TLS waits to write, and when TLS has
 * written. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transport/descriptors.h"
#include "transport/socket.h"

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: " #what "\n", __LINE__), _exit(1)))

static const unsigned char HEARTBEAT[] = {8, 0, 0, 0, 0, 0, 0, 0xce};

static _Atomic int full_fd = -1; /* a socket that takes no bytes */
static int begin[2], asked[2];   /* pipes: the peer must begin; it has requested a renegotiation */

/* The program's functions take precedence over those of libc, also in rabbitmq-c and OpenSSL. */
ssize_t send(int fd, const void *bytes, size_t length, int flags) {
  if (fd != full_fd) return sendto(fd, bytes, length, flags, NULL, 0);
  errno = EAGAIN;
  return -1;
}

int64_t al_system_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * AL_SECOND + now.tv_nsec;
}

static SSL *accepted(int listener) {
  SSL_CTX *context = SSL_CTX_new(TLS_server_method());
  EVP_PKEY *key = EVP_RSA_gen(2048);
  X509 *cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  CHECK(X509_set_pubkey(cert, key) == 1 && X509_sign(cert, key, EVP_sha256()));
  CHECK(SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION));
  CHECK(SSL_CTX_use_certificate(context, cert) == 1 && SSL_CTX_use_PrivateKey(context, key) == 1);
  SSL *ssl = SSL_new(context);
  SSL_set_fd(ssl, accept(listener, NULL, NULL));
  CHECK(SSL_accept(ssl) == 1);
  return ssl;
}

static void *peer(void *argument) {
  SSL *ssl = accepted(*(int *)argument);
  char byte;
  CHECK(SSL_write(ssl, HEARTBEAT, sizeof HEARTBEAT) == sizeof HEARTBEAT);
  CHECK(read(begin[0], &byte, 1) == 1);
  CHECK(SSL_renegotiate(ssl) == 1 && SSL_do_handshake(ssl) == 1);
  CHECK(write(asked[1], "", 1) == 1);
  SSL_clear_mode(ssl, SSL_MODE_AUTO_RETRY); /* reading ends after the handshake: no data follows */
  while (SSL_renegotiate_pending(ssl))
    CHECK(SSL_get_error(ssl, SSL_read(ssl, &byte, 1)) == SSL_ERROR_WANT_READ);
  CHECK(SSL_write(ssl, HEARTBEAT, sizeof HEARTBEAT) == sizeof HEARTBEAT);
  for (;;) pause();
}

/* Waits as the native transport does, and lets the port read, once if the socket is full, or until a frame arrives.
 * Returns whether one did. */
static bool receive(al_port *port) {
  amqp_frame_t frame;
  al_port_state state;
  do {
    struct pollfd one = {.fd = al_socket_fd(port),
                         .events = POLLIN | (al_socket_has_unsent(port) ? POLLOUT : 0)};
    CHECK(poll(&one, 1, 60000) == 1);
    while ((state = port->kind->next(port, &frame)) == AL_PORT_PART) continue;
    CHECK(state != AL_PORT_DOWN);
  } while (state != AL_PORT_FRAME && full_fd < 0);
  return state == AL_PORT_FRAME;
}

static void say(const char *when, al_port *port) {
  printf("%s: %d frame, ", when, receive(port));
  puts(al_socket_has_unsent(port) ? "waits to write" : "does not wait to write");
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  pthread_t thread;
  al_settings settings = {.host = "127.0.0.1", .tls = true, .verify = false};
  al_fork fork;
  al_code code;
  char why[256], byte;
  CHECK(pipe(begin) == 0 && pipe(asked) == 0);
  CHECK(pthread_create(&thread, NULL, peer, &listener) == 0);
  settings.port = ntohs(address.sin_port);
  CHECK(al_descriptors_init() && al_fork_init(&fork));
  al_port *port = al_socket_connect(&settings, "127.0.0.1", 60 * AL_SECOND, &fork, &code, why);
  if (!port) fprintf(stderr, "%s\n", why);
  CHECK(port);
  say("at first", port);
  full_fd = al_socket_fd(port);
  CHECK(write(begin[1], "", 1) == 1 && read(asked[0], &byte, 1) == 1);
  say("full", port);
  full_fd = -1;
  say("not full", port);
  port->kind->close(port);
  return 0;
}
