/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The descriptors that the program was given. The command inherits these, and no others. */
#ifndef CLI_COMMON_DESCRIPTORS_H
#define CLI_COMMON_DESCRIPTORS_H

/* Notes which descriptors below 4096 are open, and opens /dev/null for those of 0 to 2 that are not. Call it first: a
 * connection, or a file, must not become the standard output. The command does not inherit these. A standard output
 * that was not open stays one that cannot be written: its reader is to be told of what it does not get. */
void cli_descriptors_begin(void);

/* Closes those that the program was given, and opens /dev/null as 0 to 2: the guard must not keep a pipe of the program's
 * open. */
void cli_descriptors_leave(void);

/* The command does not inherit this one. */
void cli_descriptors_keep_back(int fd);

#endif
