/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/arguments.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "amqplocks.h"
#include "cli/common/nearest.h"
#include "cli/common/report.h"

#define OPTIONS_MOST 80
#define SECONDS_MOST 3.2e9 /* a hundred years: AL_NEVER, in nanoseconds, is three times as much */
#define HELP_COLUMN 30
#define FIRST 256 /* what getopt_long() returns for the first row: above every letter */

/* ---- reading a command line ------------------------------------------------------------------------------------- */

typedef struct cli_getopt {
  struct option longs[OPTIONS_MOST];
  char letters[3 * OPTIONS_MOST];
} cli_getopt;

/* ":" first: a missing argument is told from an option that there is not. */
static void make_getopt(cli_getopt *made, const cli_program *program) {
  size_t count = 0;
  char *letter = made->letters;
  if (!program->mixes) *letter++ = '+';
  *letter++ = ':';
  for (const cli_option *option = program->options; option->take; option++) {
    bool is_again = count > 0 && option->name && strcmp(option->name, made->longs[count - 1].name) == 0;
    int has_argument = option->word ? required_argument : no_argument;
    if (option->name && !is_again)
      made->longs[count++] =
          (struct option){option->name, has_argument, NULL, FIRST + (int)(option - program->options)};
    if (option->letter) *letter++ = option->letter;
    if (option->letter && option->word) *letter++ = ':';
  }
  *letter = '\0';
}

static const cli_option *find_option(const cli_program *program, int got) {
  if (got >= FIRST) return &program->options[got - FIRST];
  const cli_option *option = program->options;
  while (option->take && (got == 0 || option->letter != got)) option++;
  return option->take ? option : NULL;
}

static const cli_option *given[OPTIONS_MOST]; /* on the command line */
static size_t given_count;

/* A word may hold a password, as in --urll=amqp://…: only what stands before its "=" is shown. */
static void refuse_word(const cli_program *program, const char *word) {
  const char *name = word + strspn(word, "-");
  cli_nearest nearest = cli_nearest_to(name, strcspn(name, "="));
  for (const cli_option *option = program->options; option->take; option++)
    if (option->help && option->name) cli_nearest_offer(&nearest, option->name);
  cli_usage_error("unknown or ambiguous option %.*s%s%s", (int)strcspn(word, "="), word,
                  nearest.known ? "; did you mean --" : "", nearest.known ? nearest.known : "");
}

int cli_arguments_read(const cli_program *program, int argc, char **argv, void *options) {
  cli_getopt made = {0};
  char words[64];
  make_getopt(&made, program);
  opterr = 0;
  for (int got; (got = getopt_long(argc, argv, made.letters, made.longs, NULL)) != -1;) {
    const cli_option *option = find_option(program, got == ':' || got == '?' ? optopt : got);
    if (got == ':' && option) cli_usage_error("option %s needs an argument", cli_option_words(option, words));
    if (got == '?' && option) cli_usage_error("option %s takes no argument", cli_option_words(option, words));
    if (got == '?' && optopt) cli_usage_error("unknown option -%c", optopt);
    if (!option) refuse_word(program, argv[optind - 1]);
    if (given_count < OPTIONS_MOST) given[given_count++] = option;
    option->take(options, option, optarg);
  }
  return optind;
}

static bool has_verb(const cli_option *option, const char *verb) {
  size_t length = strlen(verb);
  for (const char *at = option->verbs; at && *at; at += strspn(at, " ")) {
    size_t word = strcspn(at, " ");
    if (word == length && memcmp(at, verb, length) == 0) return true;
    at += word;
  }
  return !option->verbs;
}

void cli_arguments_check(const cli_program *program, const char *verb) {
  char words[64];
  for (size_t i = 0; i < given_count; i++) {
    const cli_option *row = program->options;
    while (row->take && !(strcmp(row->name, given[i]->name) == 0 && has_verb(row, verb))) row++;
    if (!row->take) cli_usage_error("option %s is not for \"%s\"", cli_option_words(given[i], words), verb);
  }
}

const char *cli_option_words(const cli_option *option, char out[64]) {
  if (option->name && option->letter)
    snprintf(out, 64, "-%c (--%s)", option->letter, option->name);
  else if (option->name)
    snprintf(out, 64, "--%s", option->name);
  else
    snprintf(out, 64, "-%c", option->letter);
  return out;
}

/* ---- --help ----------------------------------------------------------------------------------------------------- */

static void print_option(const cli_option *option, FILE *out) {
  char left[64], letter[8] = "    ";
  if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
  snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name, option->word ? " " : "",
           option->word ? option->word : "");
  fprintf(out, "%-*s %s\n", HELP_COLUMN, left, option->help);
}

void cli_options_print(const cli_program *program, const char *verb, FILE *out) {
  const char *group = NULL, *printed = NULL;
  for (const cli_option *option = program->options; option->take; option++) {
    if (option->group) group = option->group;
    if (!option->help || (verb && !has_verb(option, verb))) continue;
    if (group != printed) fprintf(out, "%s%s:\n", printed ? "\n" : "", group);
    printed = group;
    print_option(option, out);
  }
}

/* ---- arguments of options --------------------------------------------------------------------------------------- */

static void refuse_value(const cli_option *option, const char *value, const char *wanted) {
  char words[64];
  cli_usage_error("option %s takes %s, not \"%s\"", cli_option_words(option, words), wanted, value);
}

int64_t cli_value_seconds(const cli_option *option, const char *value) {
  char *end;
  double seconds = strtod(value, &end);
  bool is_plain = value[strspn(value, "0123456789.")] == '\0'; /* strtod() also reads "inf", " 1", "0x1" */
  if (*value == '\0' || *end != '\0' || !is_plain || !(seconds <= SECONDS_MOST))
    refuse_value(option, value, "seconds, such as 1.5");
  return (int64_t)(seconds * (double)AL_SECOND);
}

static bool whole(const char *value, long *number) {
  char *end;
  errno = 0;
  *number = strtol(value, &end, 10);
  const char *digits = *value == '-' ? value + 1 : value;
  return *digits >= '0' && *digits <= '9' && *end == '\0' && errno == 0;
}

int cli_value_number(const cli_option *option, const char *value, int least, int most) {
  long number;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "a whole number from %d to %d", least, most);
  if (!whole(value, &number) || number < least || number > most) refuse_value(option, value, wanted);
  return (int)number;
}

int cli_value_word(const cli_option *option, const char *value, const char *const words[]) {
  char wanted[128] = "one of";
  for (int i = 0; words[i]; i++) {
    if (strcmp(value, words[i]) == 0) return i;
    size_t length = strlen(wanted);
    snprintf(wanted + length, sizeof wanted - length, "%s %s", i ? "," : "", words[i]);
  }
  refuse_value(option, value, wanted);
  return 0;
}

int cli_value_signal(const cli_option *option, const char *value) {
  static const struct {
    const char *name;
    int number;
  } known[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
               {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
               {"CONT", SIGCONT}, {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}};
  const char *name = strncmp(value, "SIG", 3) == 0 ? value + 3 : value;
  long number;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i].name) == 0) return known[i].number;
  if (!whole(value, &number) || number < 1 || number >= NSIG)
    refuse_value(option, value, "a signal, such as TERM");
  return (int)number;
}

char *cli_value_secret(char *value) {
  char *copy = strdup(value);
  if (!copy) cli_fail_no_memory();
  memset(value, 'x', strlen(value));
  return copy;
}

/* ---- functions for rows ----------------------------------------------------------------------------------------- */

void cli_take_flag(void *options, const cli_option *option, char *value) {
  (void)value;
  *CLI_FIELD(bool) = true;
}

void cli_take_no(void *options, const cli_option *option, char *value) {
  (void)value;
  *CLI_FIELD(bool) = false;
}

void cli_take_number(void *options, const cli_option *option, char *value) {
  *CLI_FIELD(int) = cli_value_number(option, value, option->least, option->most);
}

void cli_take_seconds(void *options, const cli_option *option, char *value) {
  *CLI_FIELD(int64_t) = cli_value_seconds(option, value);
}

void cli_take_text(void *options, const cli_option *option, char *value) { *CLI_FIELD(const char *) = value; }

void cli_take_verbose(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
  cli_report_level(CLI_LEVEL_PROGRESS);
}

void cli_take_quiet(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
  cli_report_level(CLI_LEVEL_ERRORS);
}
