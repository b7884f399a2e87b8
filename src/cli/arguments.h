/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The options of the commands: one table of all that there are, its --help, and reading a command line by it.
 *
 * Each option names the programs that take it, and for a program with verbs the verbs. A program reads its command line
 * with cli_arguments_read(), which calls the program's function for each option that is given. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The programs, as bits. */
enum { CLI_LOCK = 1, CLI_ADMIN = 2 };

typedef enum cli_option_id {
  /* which lock */
  CLI_SEMAPHORE = 256, /* above every letter, as getopt_long() needs it */
  CLI_SLOTS,
  CLI_PERMIT,
  CLI_PERMITS,
  CLI_QUORUM,
  CLI_READ,
  CLI_WRITE,
  CLI_FAST,
  CLI_FENCED,
  CLI_ALL,
  CLI_COUNT,
  /* acquiring it */
  CLI_TIMEOUT,
  CLI_NONBLOCK,
  CLI_CONFLICT_STATUS,
  CLI_WAIT_BROKER,
  CLI_FAIR,
  CLI_PRIORITY,
  CLI_POLL,
  CLI_RANDOM,
  /* while it is held */
  CLI_HOLD,
  CLI_ON_LOST,
  CLI_RESTART,
  CLI_GRACE,
  CLI_LOST_STATUS,
  CLI_ON_REVOKE,
  CLI_NO_GUARD,
  CLI_FOREGROUND,
  /* the broker */
  CLI_URL,
  CLI_URL_FILE,
  CLI_NAME,
  CLI_HEARTBEAT,
  /* what is told */
  CLI_VERBOSE,
  CLI_QUIET,
  CLI_STATUS_FD,
  CLI_NOTIFY,
  CLI_VERSION,
  CLI_HELP,
  /* administration */
  CLI_MUTEX,
  CLI_WAIT,
  CLI_REVOKE,
  CLI_FENCE,
  CLI_JSON,
  CLI_JSON_OUTPUT,
  CLI_LOCK_NAME,
  CLI_API,
  CLI_ONCE,
  CLI_INTERVAL,
  /* options of flock(1) */
  CLI_CLOSE,
  CLI_SHARED,
  CLI_EXCLUSIVE,
  CLI_EXCLUSIVE_E,
  CLI_UNLOCK,
  CLI_NO_FORK
} cli_option_id;

typedef struct cli_option {
  cli_option_id id;
  const char *name; /* the long name; NULL: a letter alone */
  char letter;      /* 0: none */
  const char *word; /* stands for its argument in --help; NULL: it has none */
  int programs;     /* CLI_LOCK, CLI_ADMIN or both */
  /* For programs with verbs: the verbs that take it, with blanks between; NULL: all of them. */
  const char *verbs;
  const char *help;  /* its line of --help; NULL: it is not shown. A "\n" in it begins another line */
  const char *group; /* the heading above its line, at the first option of a group; NULL: as before */
} cli_option;

/* The table. It ends with an option without id. */
extern const cli_option cli_options_all[];

/* A program, as cli_arguments_read() needs to know it. */
typedef struct cli_program {
  const char *name; /* "amqp-lock" */
  int bit;          /* CLI_LOCK or CLI_ADMIN */
  bool mixes;       /* options may also stand after operands; otherwise the first operand ends them */
} cli_program;

/* Takes an option. `value` is its argument, or NULL; it is a text in argv. It ends the program with
 * cli_usage_error() if the argument is wrong. */
typedef void cli_take_option(void *context, const cli_option *option, char *value);

/* Reads a command line. Ends the program with status 64 if there is an option that the program does not have, or one
 * without its argument. Returns the index in argv of the first operand, which is argc if there is none. */
int cli_arguments_read(const cli_program *program, int argc, char **argv, cli_take_option *take,
                       void *context);

/* True if the option is for `verb`. */
bool cli_option_has_verb(const cli_option *option, const char *verb);

/* Prints the lines of --help about the options of a program; `verb` not NULL: about those that the verb takes. */
void cli_options_print(const cli_program *program, const char *verb, FILE *out);

/* Writes how the option is named in a message, such as "-w (--timeout)". Returns `out`. */
const char *cli_option_words(const cli_option *option, char out[64]);

/* ---- arguments of options ---- */

/* Each of these ends the program with status 64 and a message that names the option if `value` is not such a thing. */

/* Seconds, such as "1.5", from 0 to a hundred years; returns nanoseconds. */
int64_t cli_value_seconds(const cli_option *option, const char *value);

/* A whole number, from `least` to `most`. */
int cli_value_number(const cli_option *option, const char *value, int least, int most);

/* One of `words`, which ends with NULL; returns its index. */
int cli_value_word(const cli_option *option, const char *value, const char *const words[]);

/* A signal's name, such as "TERM" or "SIGTERM", or its number; returns the number. */
int cli_value_signal(const cli_option *option, const char *value);

/* A copy of the argument, which is then overwritten where it stands in argv: other users can read a command line. */
char *cli_value_secret(char *value);

#endif
