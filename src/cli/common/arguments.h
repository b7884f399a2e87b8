/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reading a command line by a program's table of options, and printing the table as --help.
 *
 * Each row of a table names an option and the function that takes it. Most rows name one of the functions below, and
 * the field of the program's options that it sets. */
#ifndef CLI_COMMON_ARGUMENTS_H
#define CLI_COMMON_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_option cli_option;

/* Takes an option. `value` is its argument, or NULL; it is a text in argv. It ends the program with
 * cli_usage_error() if the argument is wrong. */
typedef void cli_take(void *options, const cli_option *option, char *value);

struct cli_option {
  const char *name; /* the long name; NULL: a letter alone */
  char letter;      /* 0: none */
  const char *word; /* stands for its argument in --help; NULL: it has none */
  const char *help; /* its line of --help; NULL: it is not shown */
  cli_take *take;
  size_t at;         /* offset of the field that `take` sets */
  int least, most;   /* the limits of a number, or numbers of the program's own functions */
  const char *group; /* the heading above its line, at the first option of a group; NULL: as before */
  /* For programs with verbs: the verbs that take it, with blanks between; NULL: all of them. A name may stand in the
   * table again, behind this row, with other words for other verbs. */
  const char *verbs;
};

typedef struct cli_program {
  const char *name;          /* "amqp-lock" */
  const cli_option *options; /* ends with a row without `take` */
  bool mixes; /* options may also stand after operands; otherwise the first operand ends them */
} cli_program;

/* Reads a command line into `options`. Ends the program with status 64 if there is an option that the program does not
 * have, or one without its argument. Returns the index in argv of the first operand, which is argc if there is none. */
int cli_arguments_read(const cli_program *program, int argc, char **argv, void *options);

/* Ends the program with status 64 if one of the options that were read is not for `verb`. */
void cli_arguments_check(const cli_program *program, const char *verb);

/* Prints the lines of --help about the options of a program; `verb` not NULL: about those that the verb takes. */
void cli_options_print(const cli_program *program, const char *verb, FILE *out);

/* ---- functions for rows ---- */

/* In such a function: the field that the row names, by its address. */
#define CLI_FIELD(type) ((type *)((char *)options + option->at))

cli_take cli_take_flag;    /* a bool: true */
cli_take cli_take_no;      /* a bool: false */
cli_take cli_take_number;  /* an int, from `least` to `most` */
cli_take cli_take_seconds; /* an int64_t, in nanoseconds */
cli_take cli_take_text;    /* a pointer into argv */
cli_take cli_take_verbose; /* these set what is reported */
cli_take cli_take_quiet;

#define CLI_TELLING                                                                                          \
  {.name = "verbose",                                                                                        \
   .letter = 'v',                                                                                            \
   .help = "tell the progress, at most once a second",                                                       \
   .take = cli_take_verbose,                                                                                 \
   .group = "What is told"},                                                                                 \
  {                                                                                                          \
    .name = "quiet", .letter = 'q', .help = "tell errors only", .take = cli_take_quiet                       \
  }

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
