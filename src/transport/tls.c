/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>

#if __has_include(<rabbitmq-c/ssl_socket.h>)
#include <rabbitmq-c/ssl_socket.h>
#else
#include <amqp_ssl_socket.h>
#endif

/* Keeps the first complaint of a verification with the SSL_CTX, which belongs to this one socket. */
static int verified(int good, X509_STORE_CTX *store) {
  const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  SSL_CTX *context = SSL_get_SSL_CTX(ssl);
  if (!good && !SSL_CTX_get_app_data(context))
    SSL_CTX_set_app_data(context, (void *)(intptr_t)X509_STORE_CTX_get_error(store));
  return good;
}

static bool expect_name(SSL_CTX *context, const al_settings *settings) {
  const char *name = settings->server_name[0] ? settings->server_name : settings->host;
  X509_VERIFY_PARAM *param = SSL_CTX_get0_param(context);
  struct in6_addr address;
  bool is_address = inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
  return (is_address ? X509_VERIFY_PARAM_set1_ip_asc(param, name)
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

amqp_socket_t *al_tls_socket(amqp_connection_state_t state, const al_settings *settings, char why[256]) {
  snprintf(why, 256, "TLS could not be set up");
  amqp_socket_t *socket = amqp_ssl_socket_new(state);
  if (!socket) return NULL;
  SSL_CTX *context = amqp_ssl_socket_get_context(socket);
  amqp_ssl_socket_set_verify_peer(socket, 0); /* done by OpenSSL instead, during the handshake */
  amqp_ssl_socket_set_verify_hostname(socket, 0);
  if (!present(socket, settings, why)) return NULL;
  if (!settings->verify) return socket;
  if (!trust(socket, context, settings, why) || !expect_name(context, settings)) return NULL;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, verified);
  return socket;
}

const char *al_tls_complaint(amqp_socket_t *socket) {
  intptr_t error = (intptr_t)SSL_CTX_get_app_data((SSL_CTX *)amqp_ssl_socket_get_context(socket));
  return error ? X509_verify_cert_error_string((long)error) : NULL;
}

const char *al_tls_words(void) {
  const char *words = ERR_reason_error_string(ERR_peek_last_error());
  return words ? words : "";
}
