/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/addresses.h"

#include <arpa/inet.h>
#include <string.h>

bool al_address_is_numeric(const char *host) {
  struct in6_addr address;
  return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

void al_addresses_add(al_addresses *addresses, const char *address) {
  size_t length = strlen(address);
  bool has_room = addresses->count < AL_ADDRESSES_MAX && length < AL_ADDRESS_SIZE;
  if (!has_room || al_addresses_find(addresses, address) < addresses->count) return;
  memcpy(addresses->at[addresses->count++], address, length + 1);
}

size_t al_addresses_find(const al_addresses *addresses, const char *address) {
  size_t i = 0;
  while (i < addresses->count && strcmp(addresses->at[i], address) != 0) i++;
  return i;
}
