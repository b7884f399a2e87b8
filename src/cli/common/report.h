/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Messages for people, on standard error: "amqp-lock: text". Texts come from the broker, too. So control characters in
 * them are replaced, which a terminal would obey.
 *
 * A message that standard error does not take at once is dropped: a terminal that is stopped by ^S must not keep a
 * program from renewing its lock. */
#ifndef CLI_COMMON_REPORT_H
#define CLI_COMMON_REPORT_H

#include <stdbool.h>

#include "amqplocks.h"

typedef enum cli_level {
  CLI_LEVEL_ERRORS,   /* -q */
  CLI_LEVEL_WARNINGS, /* the default */
  CLI_LEVEL_PROGRESS  /* -v */
} cli_level;

/* The name of the program, which stands before every message. Call it first; `name` stays the caller's. */
void cli_report_begin(const char *name);

/* Which messages are told: those of this level, and of the levels before it. */
void cli_report_level(cli_level level);

void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tells the notes of the library. A failure that ends the program is told by its operation, and is none of them. The end
 * of a lock or of a connection, which the program tells itself if it matters, is progress. */
void cli_report_notes(al_session *session);

/* Tells what is wrong with the command line, and ends the program with status 64. */
_Noreturn void cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program once standard output is written. If it is not, tells why, and the status is 70 instead of 0. */
_Noreturn void cli_finish(int status);

/* Tells that there is no memory, and ends the program with its status. */
_Noreturn void cli_fail_no_memory(void);

/* Replaces control characters by "?", also those that UTF-8 writes with two bytes (U+0080 to U+009F). */
void cli_text_clean(char *text);

#endif
