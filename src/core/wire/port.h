/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the core asks of a transport: to carry AMQP frames of one connection. Nothing here waits. */
#ifndef AL_CORE_WIRE_PORT_H
#define AL_CORE_WIRE_PORT_H

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef struct al_port al_port;

typedef enum al_port_state {
  AL_PORT_MORE,  /* no whole frame yet: not an error */
  AL_PORT_PART,  /* neither, but bytes have come, and there may be more of them at once */
  AL_PORT_FRAME, /* here is one, valid until its channel is released */
  AL_PORT_DOWN   /* there will be none again; `code` and `why` tell */
} al_port_state;

typedef struct al_port_kind {
  bool
      is_fetched; /* what is to be sent is fetched by the outside, so a port that is done with is kept a while */
  void (*send_header)(al_port *);
  /* Queues a frame, copying all it points to; it leaves with flush(). What does not fit brings the port down. */
  void (*send)(al_port *, const amqp_frame_t *);
  al_port_state (*next)(al_port *, amqp_frame_t *);
  void (*release)(al_port *, amqp_channel_t); /* frees what frames of this channel pointed to */
  void (*tune)(al_port *, int channel_max,
               int frame_max); /* only while connection.tune is the last frame read */
  void (*flush)(al_port *);    /* writes what the peer takes now */
  void (*close)(al_port *);    /* ends the connection and frees the port */
} al_port_kind;

struct al_port {
  const al_port_kind *kind;
  bool heard; /* bytes came since the link last looked; set by the transport, cleared by the link */
  al_code code;
  char why[256];
};

#endif
