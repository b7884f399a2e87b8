/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * TLS for the native transport: rabbitmq-c's socket, made to verify by OpenSSL's own rules, names and addresses alike,
 * against the system's certificates by default, and to say what was wrong with a certificate. Opening and closing are
 * rabbitmq-c's; the bytes in between are read and written without waiting. */
#ifndef AL_TRANSPORT_TLS_H
#define AL_TRANSPORT_TLS_H

#include <sys/types.h>

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef struct al_tls {
  struct ssl_st *ssl; /* of rabbitmq-c's socket, known from its handshake on */
  long complaint;     /* what verification found wrong; 0: nothing */
  bool awaits_input;  /* the last write waits for TLS to read, as when keys are agreed on anew */
  bool awaits_output; /* the last read waits for TLS to write, likewise */
} al_tls;

/* A TLS socket of `state`, set up by `settings`; `tls` belongs to it and lasts as long. NULL: `why` names the file that is
 * at fault, or memory. */
amqp_socket_t *al_tls_socket(al_tls *tls, amqp_connection_state_t state, const al_settings *settings,
                             char why[256]);

/* Like recv() and send(), after the handshake: how many bytes; 0: the peer has closed; -1: `errno` tells, with EAGAIN when
 * there is nothing to be had, and EPROTO when al_tls_words() has the reason. */
ssize_t al_tls_read(al_tls *tls, void *bytes, size_t room);
ssize_t al_tls_write(al_tls *tls, const void *bytes, size_t length);

/* What verification found wrong while this socket was opened; NULL if nothing. */
const char *al_tls_complaint(const al_tls *tls);

/* OpenSSL's words for the last failure of this thread; "" if it has none. */
const char *al_tls_words(void);

#endif
