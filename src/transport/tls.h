/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * TLS for the native transport, on a socket of rabbitmq-c. rabbitmq-c opens and closes the socket; this file reads and
 * writes without blocking.
 *
 * OpenSSL's own rules verify the certificate, for host names and for addresses. By default it must be signed by one of
 * the system's authorities. The settings can name other authorities, or turn the verification off. The first error of
 * the verification is kept for the message.
 *
 * OpenSSL goes on within one call as long as handshake messages come, and a peer may send them without a pause. So each
 * message is counted. The socket is shut down when the time for connecting is over, or when one call has seen more than
 * 1000 messages. */
#ifndef AL_TRANSPORT_TLS_H
#define AL_TRANSPORT_TLS_H

#include <sys/types.h>

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef struct al_tls {
  struct ssl_st *ssl; /* of rabbitmq-c's socket; known once its handshake begins */
  const char *name;   /* that the certificate must bear; only while it connects */
  long complaint;     /* the first error of the verification; 0: none */
  bool awaits_input;  /* the last write waits until TLS has read, as during a renegotiation */
  bool awaits_output; /* the last read waits until TLS has written, for the same reason */
  int64_t deadline;   /* of connecting */
  int messages;       /* of a handshake, in the current call */
} al_tls;

/* Makes a TLS socket of `state`, with the options of `settings`. `tls` must last as long as the socket. Its handshake
 * ends by `deadline`, whatever the peer sends. On failure it returns NULL: `why` names the file that cannot be used, or
 * says that TLS could not be set up; errno is EMFILE or ENFILE if no descriptor was left, and ENOMEM if there was no
 * memory. */
amqp_socket_t *al_tls_socket(al_tls *tls, amqp_connection_state_t state, const al_settings *settings,
                             int64_t deadline, char why[256]);

/* Like recv() and send(), after the handshake: return the number of bytes; 0: the peer has closed; -1: see errno.
 * EAGAIN: no bytes can be read or written now. EPROTO: al_tls_words() returns the reason. */
ssize_t al_tls_read(al_tls *tls, void *bytes, size_t room);
ssize_t al_tls_write(al_tls *tls, const void *bytes, size_t length);

/* Returns the error of the verification of the certificate; NULL: none. */
const char *al_tls_complaint(const al_tls *tls);

/* True if the handshake has failed only because the connection ended: the peer may have gone, and refused nothing. */
bool al_tls_is_cut(const al_tls *tls);

/* Describes the failure of the last call: with OpenSSL's text, if there is one. */
const char *al_tls_words(const al_tls *tls);

#endif
