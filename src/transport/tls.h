/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * TLS for the native transport: rabbitmq-c's socket, made to verify by OpenSSL's own rules, names and addresses alike,
 * against the system's certificates by default, and to say what was wrong with a certificate. */
#ifndef AL_TRANSPORT_TLS_H
#define AL_TRANSPORT_TLS_H

#include "amqplocks.h"
#include "core/amqp.h"

/* A TLS socket of `state`, set up by `settings`. NULL: `why` names the file that is at fault, or memory. */
amqp_socket_t *al_tls_socket(amqp_connection_state_t state, const al_settings *settings, char why[256]);

/* What verification found wrong while this socket was opened; NULL if nothing. */
const char *al_tls_complaint(amqp_socket_t *socket);

/* OpenSSL's words for the last failure of this thread; "" if it has none. */
const char *al_tls_words(void);

#endif
