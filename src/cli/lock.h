/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring the lock that the options name, and releasing it. */
#ifndef CLI_LOCK_H
#define CLI_LOCK_H

#include "cli/news.h"

typedef struct cli_result {
  al_code code;
  char message[AL_MESSAGE_SIZE]; /* "" for AL_OK */
} cli_result;

/* Waits for the lock, and creates its semaphore first if there is none and the options say so. Returns NULL if it was
 * not acquired: `result` says why. */
al_lock *cli_lock_acquire(al_session *session, const cli_options *options, cli_news *news,
                          cli_result *result);

/* Releases the lock and closes the session, and waits for both. Returns AL_OK, or what became of the lock: AL_LOST, or
 * AL_UNREACHABLE if the broker did not confirm the release. */
cli_result cli_lock_release(al_session *session, al_lock *lock);

/* Closes the session, and waits for it. */
void cli_lock_close(al_session *session);

#endif
