/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The nodes of one cluster that a link may connect to, in the order in which it tries them.
 *
 * An attempt to connect tries each node at most once, beginning with the one after the node of the connection before; the
 * time for connecting is divided among them. It ends with the first node that takes the connection, or with a failure that
 * every other node would repeat: wrong credentials, a virtual host, TLS, another cluster. */
#ifndef AL_CORE_WIRE_NODES_H
#define AL_CORE_WIRE_NODES_H

#include "amqplocks.h"

/* Never changed once it is made. */
typedef struct al_nodes {
  size_t count;
  al_settings at[];
} al_nodes;

/* What the links of a session know in common, and those of all sessions that share a prober. */
typedef struct al_cluster {
  char name[256]; /* as the first broker has told that took a connection; "": none has */
  size_t good;    /* the node that took the last connection, where a link begins that had none before */
  uint64_t seed;  /* for the order of lists that are shuffled: the same list is shuffled to the same order */
} al_cluster;

/* A copy of `settings`, all with the virtual host, the name and the timeout of `usual`. `seed`: shuffled by it; NULL: in the
 * order given. NULL: no memory. */
al_nodes *al_nodes_new(const al_settings *settings, size_t count, const al_settings *usual,
                       const uint64_t *seed);

/* Takes NULL. */
void al_nodes_free(al_nodes *nodes);

/* Whether another node may take the connection that one has failed with this. */
bool al_nodes_go_on(al_code code);

#endif
