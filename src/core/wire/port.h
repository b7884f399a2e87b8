/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A port is what a transport gives to the core: it carries the AMQP frames of one connection. No function of a port
 * waits. A transport is code outside the core that opens sockets, such as the one over rabbitmq-c's sockets. */
#ifndef AL_CORE_WIRE_PORT_H
#define AL_CORE_WIRE_PORT_H

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef struct al_port al_port;

#define AL_PROTOCOL_HEADER 'A' /* the type of a "frame" that is a protocol header */

typedef enum al_port_state {
  AL_PORT_MORE,  /* no whole frame has arrived yet, and nothing more can be read now; this is not an error */
  AL_PORT_PART,  /* no whole frame has arrived yet, but some bytes have, and more may be read at once */
  AL_PORT_FRAME, /* a frame, valid until the next call */
  AL_PORT_DOWN   /* no frame will come again; `code` and `why` tell the reason */
} al_port_state;

typedef struct al_port_kind {
  /* The program fetches the bytes to be sent: the port does not write them itself. So a port that has ended is kept
   * for a while. */
  bool is_fetched;
  void (*send_header)(al_port *);
  /* Queues a frame, and copies all that it points to; flush() writes it. A frame that does not fit brings the port
   * down. */
  void (*send)(al_port *, const amqp_frame_t *);
  al_port_state (*next)(al_port *, amqp_frame_t *);
  void (*flush)(al_port *); /* writes as much as can be written without waiting */
  void (*close)(al_port *); /* ends the connection and frees the port */
} al_port_kind;

struct al_port {
  const al_port_kind *kind;
  bool heard; /* bytes have arrived; set by the transport, cleared by the link when it has noted the time */
  al_code code;
  char why[256];
};

#endif
