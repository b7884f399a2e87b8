/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The numeric addresses of a host, in the order in which the resolver gave them. */
#ifndef AL_CORE_WIRE_ADDRESSES_H
#define AL_CORE_WIRE_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

#define AL_ADDRESSES_MAX 64
#define AL_ADDRESS_SIZE 64 /* an IPv6 address with its zone */

typedef struct al_addresses {
  size_t count;
  char at[AL_ADDRESSES_MAX][AL_ADDRESS_SIZE];
} al_addresses;

/* True for an address, which needs no resolver. */
bool al_address_is_numeric(const char *host);

/* Adds an address unless it is there already, or there is no room for it. */
void al_addresses_add(al_addresses *addresses, const char *address);

/* The index of the address; `count`: it is not there. */
size_t al_addresses_find(const al_addresses *addresses, const char *address);

#endif
