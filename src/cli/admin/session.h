/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Waiting for the broker, and for signals meanwhile. Before the connection is open, TERM, INT, HUP and QUIT end the program
 * at once. After that the first of them abandons the operation, so that what it holds goes back in order, and closes the
 * session; the program then dies of the signal. A second one ends the program at once. */
#ifndef CLI_ADMIN_SESSION_H
#define CLI_ADMIN_SESSION_H

#include "cli/admin/options.h"

/* Returns an open session. Ends the program with a message and its status if there is none. */
al_session *admin_session_open(admin_options *options);

/* Waits for the operation; `op` NULL is no memory. Returns its code, and its message by `message`. It is still the
 * caller's. Ends the program at a signal. */
al_code admin_session_await(al_session *session, al_op *op, char message[AL_MESSAGE_SIZE]);

/* Lets a second pass, and tells the session's news. Ends the program at a signal. */
void admin_session_pause(al_session *session);

/* Closes the session, and gives it back. */
void admin_session_close(al_session *session);

#endif
