/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The nodes of one cluster that a link may connect to, in the order in which the link tries them. A node whose name
 * has several addresses stands for as many places: each of them is tried like a node, one after another.
 *
 * An attempt to connect tries each place at most once. It begins with the place after the one of the previous
 * connection. The time for connecting is divided among the nodes, and a node's among its addresses. The attempt ends
 * with the first place that accepts the connection. It also ends with a failure that every other node would repeat:
 * wrong credentials, a virtual host, TLS, another cluster. */
#ifndef AL_CORE_WIRE_NODES_H
#define AL_CORE_WIRE_NODES_H

#include "amqplocks.h"
#include "core/wire/addresses.h"

/* Immutable. */
typedef struct al_nodes {
  size_t count;
  al_settings at[];
} al_nodes;

/* What is known of the cluster. It is shared by the links of a session. */
typedef struct al_cluster {
  char name
      [256]; /* told by the first broker that accepted a connection and told a name; "": none has told one */
  size_t open; /* number of links that have a connection */
  size_t good; /* the node of the last connection; a link that had no connection before begins with it */
  char good_address[AL_ADDRESS_SIZE]; /* the same of its addresses */
  uint64_t seed; /* for lists that are shuffled: the same list is always shuffled to the same order */
} al_cluster;

/* Returns a copy of `settings` in which each entry has the virtual host, the name and the timeout of `usual`. The
 * copy is shuffled by `seed`, or in the order given if `seed` is NULL. Returns NULL if there is no memory. */
al_nodes *al_nodes_new(const al_settings *settings, size_t count, const al_settings *usual,
                       const uint64_t *seed);

/* `nodes` may be NULL. */
void al_nodes_free(al_nodes *nodes);

/* True if another node may accept the connection after one node has failed with this code. */
bool al_nodes_go_on(al_code code);

#endif
