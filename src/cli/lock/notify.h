/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * --notify: systemd's sd_notify(3), a datagram to $NOTIFY_SOCKET. */
#ifndef CLI_LOCK_NOTIFY_H
#define CLI_LOCK_NOTIFY_H

/* Takes $NOTIFY_SOCKET out of the environment, so that the command does not have it. Returns a socket that is connected
 * to it, or -1 with a warning if there is none. */
int cli_notify_open(void);

/* Sends assignments, such as "READY=1". `fd` -1: to nobody. */
void cli_notify_send(int fd, const char *assignments);

/* Sends "STATUS=" and the text. */
void cli_notify_status(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
