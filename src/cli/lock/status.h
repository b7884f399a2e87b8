/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * --status-fd: what happens, as lines of JSON, one object each, for programs. Every object has "event". A line that the
 * descriptor does not take at once is dropped; the next line has the number of those that were, as "dropped".
 *
 *     status line = cli_status_begin("acquired");
 *     cli_status_text(&line, "ticket", ticket);
 *     cli_status_number(&line, "slot", 3);
 *     cli_status_end(&line, fd); */
#ifndef CLI_LOCK_STATUS_H
#define CLI_LOCK_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#define CLI_STATUS_SIZE 4096 /* a pipe takes so many bytes in one piece */

typedef struct cli_status {
  char text[CLI_STATUS_SIZE];
  size_t length;
} cli_status;

cli_status cli_status_begin(const char *event);
void cli_status_text(cli_status *line, const char *key, const char *value);
void cli_status_number(cli_status *line, const char *key, double value);  /* a whole one, below 2^53 */
void cli_status_seconds(cli_status *line, const char *key, double value); /* with milliseconds */

/* Writes the line. `fd` -1: to nobody. */
void cli_status_end(cli_status *line, int fd);

/* Writes a line that is complete. It may be called in a handler of a signal. Returns false if it was dropped. */
bool cli_status_write(int fd, const char *text, size_t length);

/* Returns how many lines were dropped so far. */
int cli_status_dropped(void);

#endif
