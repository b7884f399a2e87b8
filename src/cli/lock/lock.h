/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring the locks that the options name, and releasing them. */
#ifndef CLI_LOCK_LOCK_H
#define CLI_LOCK_LOCK_H

#include "cli/lock/held.h"
#include "cli/lock/news.h"

typedef struct cli_result {
  al_code code;
  char message[AL_MESSAGE_SIZE]; /* "" for AL_OK */
} cli_result;

/* Waits for the locks, and creates a semaphore first if there is none and the options say so. Returns false if not all
 * of them were acquired, and then none is held: `result` says why. */
bool cli_lock_acquire(al_session *session, const cli_options *options, cli_news *news, cli_held *held,
                      cli_result *result);

/* Releases the locks and closes the session, and waits for both. Returns AL_OK, or what became of a lock: AL_LOST, or
 * AL_UNREACHABLE if the broker did not confirm the release. */
cli_result cli_lock_release(al_session *session, cli_held *held);

/* Closes the session, and waits for it. */
void cli_lock_close(al_session *session);

#endif
