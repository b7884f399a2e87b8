/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A set of message ids, to see a permit that exists twice. The message id of a permit that this library published
 * has 16 lower-case hexadecimal digits. Message ids of other software are ignored. */
#ifndef AL_CORE_BASE_IDS_H
#define AL_CORE_BASE_IDS_H

#include "amqplocks.h"

/* True if the id has the form of those that this library makes. */
bool al_id_is_ours(const char *id);

typedef struct al_ids {
  uint64_t *slots; /* 0: free */
  size_t size, at;
} al_ids;

/* Makes an empty set with room for `most` ids. False: no memory. */
bool al_ids_init(al_ids *ids, size_t most);

/* Adds an id. False: it is in the set already. An id of another form is not added, and the result is true. */
bool al_ids_add(al_ids *ids, const char *id);

/* Takes an id out. False: none is left. */
bool al_ids_take(al_ids *ids, char id[AL_TICKET_SIZE]);

void al_ids_free(al_ids *ids);

#endif
