/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The fence links: two more connections of a session, for fencing tokens. A fencing token is a number that is larger
 * for each later holder of a lock. A fence is the queue that such numbers are drawn from (queue/fence_draw.h).
 *
 *   fence   draws numbers. It never publishes, and no lock is ever held on it: while a fence has no leader, the
 *           broker may answer a draw by ending the whole connection. It is opened when first needed, and closed when
 *           it was not used for a minute.
 *   maker   makes a fence (queue/fence_maker.h). It is opened for one fence, by one operation, and ended with the
 *           operation: what it has not sent by then is never sent.
 *
 * They belong to the session's prober. */
#ifndef AL_CORE_SESSION_FENCE_LINKS_H
#define AL_CORE_SESSION_FENCE_LINKS_H

#include "core/wire/link.h"

typedef struct al_fence_links {
  al_link fence, maker;
  int64_t used_at;    /* when a draw last used `fence` */
  const void *making; /* the part of an operation that has the maker connection; NULL: it is free */
  struct al_seen {
    struct al_seen_number *ring; /* of the fences, or permits, seen last; NULL: none */
    int next;
  } fences, permits;
} al_fence_links;

/* Makes both links. `like` has the settings, the cluster, and the watcher. */
void al_fence_links_init(al_fence_links *links, const al_link *like);
void al_fence_links_free(al_fence_links *links);

void al_fence_links_set_now(al_fence_links *links, int64_t now);
void al_fence_links_pump(al_fence_links *links, int64_t now);
/* Returns when to pump next although nothing has arrived. */
int64_t al_fence_links_wake(const al_fence_links *links);

/* If one of the links went down for a reason that may pass, it is forgotten: another connection may be wanted. */
void al_fence_links_renew(al_link *link);

/* The largest number that was drawn from this fence, on any connection; 0 if none was, or if many other fences were used
 * since. */
int64_t al_fence_links_seen(const al_fence_links *links, const char *fence);
/* A number was drawn. */
void al_fence_links_see(al_fence_links *links, const char *fence, int64_t number);
/* A permit came with this number. False: it is not larger than one that it came with before. */
bool al_fence_links_see_permit(al_fence_links *links, const char *id, int64_t number);

#endif
