/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the layers above keep in a session: things of a kind, by name. A kind may have a limit. Beyond that, the thing
 * that was not used for longest goes. All go with the session. */
#ifndef AL_CORE_SESSION_ANNEX_H
#define AL_CORE_SESSION_ANNEX_H

#include "core/session/session.h"

typedef struct al_annex_kind {
  size_t size;               /* of a thing */
  int most;                  /* 0: no limit */
  void (*drop)(void *thing); /* before it is freed; NULL */
} al_annex_kind;

/* The thing of this name, made of zeros if there was none. It counts as used. NULL: no memory. */
void *al_annex_use(al_session *session, const al_annex_kind *kind, const char *name);
/* The same; NULL: there is none. */
void *al_annex_find(const al_session *session, const al_annex_kind *kind, const char *name);
void al_annex_drop(al_session *session, const al_annex_kind *kind, const char *name);
void al_annex_each(al_session *session, const al_annex_kind *kind,
                   void (*visit)(al_session *, const char *name, void *thing));

void al_annexes_free(al_session *session);

#endif
