/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/resolver.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/frames.h"

static al_addresses *refuse(int status, const char *host, al_code *code, char why[256]) {
  bool lacks_descriptor = errno == EMFILE || errno == ENFILE;
  bool lacks_memory = status == 0 || status == EAI_MEMORY;
  *code = lacks_memory ? AL_NO_MEMORY : lacks_descriptor ? AL_LIMIT : AL_UNREACHABLE;
  if (lacks_memory)
    snprintf(why, 256, AL_FRAMES_NO_MEMORY);
  else if (lacks_descriptor)
    snprintf(why, 256, "%s", strerror(errno));
  else
    snprintf(why, 256, "the name \"%.200s\" cannot be resolved", host);
  return NULL;
}

static void add(al_addresses *addresses, const struct addrinfo *one) {
  char text[AL_ADDRESS_SIZE];
  if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
    al_addresses_add(addresses, text);
}

al_addresses *al_resolve(const char *host, al_code *code, char why[256]) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP}, *found = NULL;
  errno = 0;
  int status = getaddrinfo(host, NULL, &hints, &found);
  if (status != 0) return refuse(status, host, code, why);
  al_addresses *addresses = calloc(1, sizeof *addresses);
  for (const struct addrinfo *one = found; addresses && one; one = one->ai_next) add(addresses, one);
  freeaddrinfo(found);
  if (!addresses) return refuse(0, host, code, why);
  if (addresses->count > 0) return addresses;
  free(addresses);
  return refuse(EAI_NONAME, host, code, why);
}
