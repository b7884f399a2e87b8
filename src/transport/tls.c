/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/socket.h>

#include "core/wire/addresses.h"
#include "transport/system.h"

#if __has_include(<rabbitmq-c/ssl_socket.h>)
#include <rabbitmq-c/ssl_socket.h>
#else
#include <amqp_ssl_socket.h>
#endif

#define MESSAGES_MOST 1000 /* of a handshake, in one call: far more than a renegotiation takes */

/* An SSL_CTX belongs to this one socket. */
static al_tls *tls_of(const SSL *ssl) { return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)); }

/* Keeps the first complaint of a verification. */
static int verified(int good, X509_STORE_CTX *store) {
  al_tls *tls = tls_of(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  if (!good && tls->complaint == 0) tls->complaint = X509_STORE_CTX_get_error(store);
  return good;
}

/* rabbitmq-c makes the SSL object. Only callbacks of its SSL_CTX see it. */
static void progressed(const SSL *ssl, int where, int value) {
  (void)where;
  (void)value;
  al_tls *tls = tls_of(ssl);
  if (tls->ssl) return;
  tls->ssl =
      (SSL *)ssl; /* before the handshake's first message; rabbitmq-c has given the address as the name */
  const char *name = al_address_is_numeric(tls->name) ? NULL : tls->name;
  SSL_set_tlsext_host_name(tls->ssl, name);
}

/* OpenSSL calls this for each handshake message and for each record header. */
static void message_came(int is_sent, int version, int type, const void *bytes, size_t length, SSL *ssl,
                         void *argument) {
  al_tls *tls = argument;
  (void)version;
  (void)bytes;
  (void)length;
  if (is_sent || type != SSL3_RT_HANDSHAKE) return;
  bool is_late = !SSL_is_init_finished(ssl) && al_system_now() >= tls->deadline;
  if (++tls->messages > MESSAGES_MOST || is_late) shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static bool expect_name(SSL_CTX *context, const char *name) {
  X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
  return (al_address_is_numeric(name) ? X509_VERIFY_PARAM_set1_ip_asc(param, name)
                                      : X509_VERIFY_PARAM_set1_host(param, name, 0)) == 1;
}

static bool trust(amqp_socket_t *socket, SSL_CTX *context, const al_settings *settings, char why[256]) {
  if (settings->ca[0] == '\0') return SSL_CTX_set_default_verify_paths(context) == 1;
  if (amqp_ssl_socket_set_cacert(socket, settings->ca) == AMQP_STATUS_OK) return true;
  snprintf(why, 256, "cannot read the certificates of \"%.200s\"", settings->ca);
  return false;
}

static bool present(amqp_socket_t *socket, const al_settings *settings, char why[256]) {
  if (settings->cert[0] == '\0') return true;
  if (amqp_ssl_socket_set_key(socket, settings->cert, settings->key) == AMQP_STATUS_OK) return true;
  snprintf(why, 256, "cannot use the certificate \"%.100s\" with the key \"%.100s\"", settings->cert,
           settings->key);
  return false;
}

amqp_socket_t *al_tls_socket(al_tls *tls, amqp_connection_state_t state, const al_settings *settings,
                             int64_t deadline, char why[256]) {
  snprintf(why, 256, "TLS could not be set up");
  amqp_socket_t *socket = amqp_ssl_socket_new(state);
  if (!socket) return NULL;
  SSL_CTX *context = amqp_ssl_socket_get_context(socket);
  amqp_ssl_socket_set_verify_peer(socket, 0); /* OpenSSL verifies instead, during the handshake */
  amqp_ssl_socket_set_verify_hostname(socket, 0);
  SSL_CTX_set_app_data(context, tls);
  SSL_CTX_set_info_callback(context, progressed);
  SSL_CTX_set_msg_callback(context, message_came);
  SSL_CTX_set_msg_callback_arg(context, tls);
  tls->deadline = deadline;
  tls->name = settings->server_name[0] ? settings->server_name : settings->host;
  SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER); /* the bytes to send may grow meanwhile */
  if (!present(socket, settings, why)) return NULL;
  if (!settings->verify) return socket;
  if (!trust(socket, context, settings, why) || !expect_name(context, tls->name)) return NULL;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, verified);
  return socket;
}

/* True if OpenSSL reports that the peer closed without TLS's closing message. Not all versions do. */
static bool is_eof(void) {
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
  return ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#else
  return false;
#endif
}

static bool has_hung_up(int error, int system) {
  return (error == SSL_ERROR_SSL && is_eof()) || (error == SSL_ERROR_SYSCALL && system == 0);
}

/* Translates the result of SSL_read() or SSL_write() to that of recv() or send(). */
static ssize_t told(const al_tls *tls, int result) {
  int system = errno, error = SSL_get_error(tls->ssl, result);
  if (result > 0) return result;
  errno = EAGAIN;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return -1;
  if (error == SSL_ERROR_ZERO_RETURN || has_hung_up(error, system)) return 0;
  errno = error == SSL_ERROR_SYSCALL ? system : EPROTO;
  return -1;
}

ssize_t al_tls_read(al_tls *tls, void *bytes, size_t room) {
  ERR_clear_error();
  errno = 0;
  tls->messages = 0;
  tls->deadline = AL_NEVER; /* the handshake is over, and a renegotiation has no deadline */
  ssize_t got = told(tls, SSL_read(tls->ssl, bytes, room < INT_MAX ? (int)room : INT_MAX));
  tls->awaits_output = got < 0 && SSL_want_write(tls->ssl);
  return got;
}

ssize_t al_tls_write(al_tls *tls, const void *bytes, size_t length) {
  ERR_clear_error();
  errno = 0;
  tls->messages = 0;
  ssize_t sent = told(tls, SSL_write(tls->ssl, bytes, length < INT_MAX ? (int)length : INT_MAX));
  tls->awaits_input = sent < 0 && SSL_want_read(tls->ssl);
  return sent;
}

const char *al_tls_complaint(const al_tls *tls) {
  return tls->complaint ? X509_verify_cert_error_string(tls->complaint) : NULL;
}

bool al_tls_is_cut(const al_tls *tls) {
  return tls->messages <= MESSAGES_MOST && (ERR_peek_error() == 0 || is_eof());
}

const char *al_tls_words(const al_tls *tls) {
  const char *words = ERR_reason_error_string(ERR_peek_last_error());
  if (tls->messages > MESSAGES_MOST) return "the peer sends handshake messages without end";
  if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER)
    return "this port does not speak TLS: use amqp://";
  return words ? words : "the peer closed the connection during the handshake";
}
