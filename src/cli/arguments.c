/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/arguments.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "amqplocks.h"
#include "cli/report.h"

#define OPTIONS_MOST 80
#define BOTH (CLI_LOCK | CLI_ADMIN)
#define SECONDS_MOST 3.2e9 /* a hundred years: AL_NEVER, in nanoseconds, is three times as much */
#define HELP_COLUMN 30

/* The verbs that ask the broker themselves. */
#define OF_BROKER "create add remove resize destroy repair slots status revoke forget-fence watch"

const cli_option cli_options_all[] = {
    {CLI_SEMAPHORE, "semaphore", 'S', NULL, CLI_LOCK, NULL, "a slot of semaphore NAME",
     "Which lock (without: the mutex NAME)"},
    {CLI_SLOTS, "slots", 0, "N", CLI_LOCK, NULL, "create the semaphore with N slots if there is none", NULL},
    {CLI_PERMIT, "permit", 'P', NULL, CLI_LOCK, NULL, "a permit of token semaphore NAME", NULL},
    {CLI_PERMITS, "permits", 0, "N", CLI_LOCK, NULL,
     "create the token semaphore with N permits if there is none", NULL},
    {CLI_QUORUM, "quorum", 0, NULL, CLI_LOCK, NULL, "the semaphore consists of quorum queues", NULL},
    {CLI_READ, "read", 'r', NULL, CLI_LOCK, NULL, "the readers-writer lock NAME, as one of its readers",
     NULL},
    {CLI_WRITE, "write", 'W', NULL, CLI_LOCK, NULL, "the readers-writer lock NAME, as its only writer", NULL},
    {CLI_FAST, "fast", 0, NULL, CLI_LOCK, NULL, "the fast mutex NAME, another lock than the mutex NAME",
     NULL},
    {CLI_FENCED, "fenced", 0, NULL, CLI_LOCK, NULL, "with a fencing token for COMMAND: AMQP_LOCK_FENCE",
     NULL},
    {CLI_COUNT, "count", 0, "K", CLI_LOCK, NULL, "K slots or permits at once, or none", NULL},
    {CLI_ALL, "all", 0, "LIST", CLI_LOCK, NULL, "in place of NAME: KIND:NAME[,KIND:NAME...], all or none",
     NULL},

    {CLI_PERMIT, "permits", 'P', NULL, CLI_ADMIN,
     "create add remove resize destroy repair slots status watch", "NAME is a token semaphore, N are permits",
     "Which lock (without: the semaphore NAME)"},
    {CLI_MUTEX, "mutex", 'm', NULL, CLI_ADMIN, "revoke forget-fence", "the mutex NAME", NULL},
    {CLI_READ, "read", 'r', NULL, CLI_ADMIN, "revoke forget-fence",
     "the readers-writer lock NAME; revoke: its readers", NULL},
    {CLI_WRITE, "write", 'W', NULL, CLI_ADMIN, "revoke forget-fence",
     "the readers-writer lock NAME; revoke: its writer", NULL},
    {CLI_QUORUM, "quorum", 0, NULL, CLI_ADMIN, "create add resize repair",
     "create quorum queues; repair -P: they are quorum queues", "How"},
    {CLI_WAIT, "wait", 0, "S", CLI_ADMIN, "add remove resize destroy repair revoke",
     "wait for holders to release, for at most S seconds", "How"},
    {CLI_REVOKE, "revoke", 0, NULL, CLI_ADMIN, "remove resize destroy",
     "ask the holders of removed slots to release", NULL},
    {CLI_FENCE, "fence", 0, NULL, CLI_ADMIN, "create resize repair destroy",
     "make, or mend, the fence; destroy: delete it, too", NULL},
    {CLI_TIMEOUT, "timeout", 'w', "S", CLI_ADMIN, "create add remove resize destroy repair slots status",
     "seconds for the action, and for another administrator (30)", NULL},
    {CLI_TIMEOUT, "timeout", 'w', "S", CLI_ADMIN, "top", "seconds for the answers of one table (10)", NULL},
    {CLI_INTERVAL, "interval", 0, "S", CLI_ADMIN, "top", "seconds between two tables (2)", "How"},
    {CLI_ONCE, "once", 0, NULL, CLI_ADMIN, "top", "print one table and end", "How"},
    {CLI_JSON, "json", 0, NULL, CLI_ADMIN, "ls holders", "the input is JSON of the management API",
     "Input and output"},
    {CLI_JSON, "json", 0, NULL, CLI_ADMIN, "create add remove resize repair slots status watch top",
     "print JSON, an object a line", "Input and output"},
    {CLI_JSON_OUTPUT, "json-output", 0, NULL, CLI_ADMIN,
     "ls create add remove resize repair slots status watch top", "print JSON, an object a line",
     "Input and output"},
    {CLI_LOCK_NAME, "lock", 0, "NAME", CLI_ADMIN, "ls holders top", "show locks of this name only", NULL},
    {CLI_API, "api", 0, "URL", CLI_ADMIN, "holders top", "the management API (http://localhost:15672/api)",
     NULL},

    {CLI_TIMEOUT, "timeout", 'w', "S", CLI_LOCK, NULL, "wait for at most S seconds (for ever)",
     "Acquiring it"},
    {CLI_NONBLOCK, "nonblock", 'n', NULL, CLI_LOCK, NULL, "do not wait", NULL},
    {CLI_CONFLICT_STATUS, "conflict-exit-code", 'E', "N", CLI_LOCK, NULL,
     "exit status if it was not acquired in time (75)", NULL},
    {CLI_WAIT_BROKER, "wait-broker", 0, NULL, CLI_LOCK, NULL, "wait for a broker that is away, too", NULL},
    {CLI_FAIR, "fair", 0, NULL, CLI_LOCK, NULL, "queue behind all that wait already", NULL},
    {CLI_PRIORITY, "priority", 0, "N", CLI_LOCK, NULL, "waiters with a higher number are served first (0)",
     NULL},
    {CLI_POLL, "poll", 0, "S", CLI_LOCK, NULL, "seconds between searches while waiting (5)", NULL},
    {CLI_RANDOM, "random", 0, NULL, CLI_LOCK, NULL, "take a random one of the first 16 free slots", NULL},

    {CLI_HOLD, "hold", 0, NULL, CLI_LOCK, NULL, "run no command: hold it until the input ends",
     "While it is held"},
    {CLI_ON_LOST, "on-lost", 0, "ACTION", CLI_LOCK, NULL,
     "what COMMAND gets when it is lost: term, kill, ignore (term)", NULL},
    {CLI_RESTART, "restart", 0, NULL, CLI_LOCK, NULL,
     "when it was lost, acquire it again, and run COMMAND again", NULL},
    {CLI_GRACE, "grace", 0, "S", CLI_LOCK, NULL,
     "seconds from TERM to KILL (10, or one heartbeat if that is less)", NULL},
    {CLI_LOST_STATUS, "lost-exit-code", 0, "N", CLI_LOCK, NULL, "exit status if it was lost (76)", NULL},
    {CLI_ON_REVOKE, "on-revoke", 0, "ACTION", CLI_LOCK, NULL,
     "a signal for COMMAND when it is asked back, or ignore (ignore)", NULL},
    {CLI_NO_GUARD, "no-guard", 0, NULL, CLI_LOCK, NULL,
     "run no second process that ends COMMAND if this one is killed", NULL},
    {CLI_FOREGROUND, "foreground", 0, NULL, CLI_LOCK, NULL, "COMMAND stays in this process group", NULL},

    {CLI_URL, "url", 0, "URL", BOTH, OF_BROKER, "amqp:// or amqps:// ($AMQP_URL, or guest at localhost)",
     "The broker"},
    {CLI_URL_FILE, "url-file", 0, "FILE", BOTH, OF_BROKER, "the URL is the first line of FILE", NULL},
    {CLI_NAME, "name", 0, "TEXT", BOTH, OF_BROKER,
     "how the broker's tools show this client (program[pid]@host)", NULL},
    {CLI_HEARTBEAT, "heartbeat", 0, "S", BOTH, OF_BROKER, "whole seconds (10, or what the URL says)", NULL},

    {CLI_VERBOSE, "verbose", 'v', NULL, BOTH, NULL, "tell the progress, at most once a second",
     "What is told"},
    {CLI_QUIET, "quiet", 'q', NULL, BOTH, NULL, "tell errors only", NULL},
    {CLI_STATUS_FD, "status-fd", 0, "N", CLI_LOCK, NULL, "write JSON lines to descriptor N", NULL},
    {CLI_NOTIFY, "notify", 0, NULL, CLI_LOCK, NULL, "tell systemd: READY=1 once it is held", NULL},
    {CLI_VERSION, "version", 'V', NULL, BOTH, NULL, "print the version", NULL},
    {CLI_HELP, "help", 'h', NULL, BOTH, NULL, "print this", NULL},

    {CLI_CLOSE, "close", 'o', NULL, CLI_LOCK, NULL,
     "accepted for flock(1): COMMAND never has the lock's descriptors", "As in flock(1)"},
    {CLI_SHARED, "shared", 's', NULL, CLI_LOCK, NULL, NULL, NULL},
    {CLI_EXCLUSIVE, "exclusive", 'x', NULL, CLI_LOCK, NULL, NULL, NULL},
    {CLI_EXCLUSIVE_E, NULL, 'e', NULL, CLI_LOCK, NULL, NULL, NULL},
    {CLI_UNLOCK, "unlock", 'u', NULL, CLI_LOCK, NULL, NULL, NULL},
    {CLI_NO_FORK, "no-fork", 'F', NULL, CLI_LOCK, NULL, NULL, NULL},
    {0},
};

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
  for (const cli_option *option = cli_options_all; option->id; option++) {
    bool is_again = count > 0 && option->name && strcmp(option->name, made->longs[count - 1].name) == 0;
    int has_argument = option->word ? required_argument : no_argument;
    if (!(option->programs & program->bit)) continue;
    if (option->name && !is_again)
      made->longs[count++] = (struct option){option->name, has_argument, NULL, (int)option->id};
    if (option->letter) *letter++ = option->letter;
    if (option->letter && option->word) *letter++ = ':';
  }
  *letter = '\0';
}

static const cli_option *find_option(const cli_program *program, int got) {
  for (const cli_option *option = cli_options_all; option->id; option++)
    if ((option->programs & program->bit) && got != 0 && ((int)option->id == got || option->letter == got))
      return option;
  return NULL;
}

/* A word may hold a password, as in --urll=amqp://…: only what stands before its "=" is shown. */
static void refuse_word(const char *word) {
  cli_usage_error("unknown or ambiguous option %.*s", (int)strcspn(word, "="), word);
}

int cli_arguments_read(const cli_program *program, int argc, char **argv, cli_take_option *take,
                       void *context) {
  cli_getopt made = {0};
  char words[64];
  make_getopt(&made, program);
  opterr = 0;
  for (int got; (got = getopt_long(argc, argv, made.letters, made.longs, NULL)) != -1;) {
    const cli_option *option = find_option(program, got == ':' || got == '?' ? optopt : got);
    if (got == ':' && option) cli_usage_error("option %s needs an argument", cli_option_words(option, words));
    if (got == '?' && option) cli_usage_error("option %s takes no argument", cli_option_words(option, words));
    if (got == '?' && optopt == 'c' && program->bit == CLI_LOCK)
      cli_usage_error("option -c stands behind NAME: amqp-lock NAME -c 'SHELL LINE'");
    if (got == '?' && optopt) cli_usage_error("unknown option -%c", optopt);
    if (!option) refuse_word(argv[optind - 1]);
    take(context, option, optarg);
  }
  return optind;
}

bool cli_option_has_verb(const cli_option *option, const char *verb) {
  size_t length = strlen(verb);
  for (const char *at = option->verbs; at && *at; at += strspn(at, " ")) {
    size_t word = strcspn(at, " ");
    if (word == length && memcmp(at, verb, length) == 0) return true;
    at += word;
  }
  return !option->verbs;
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
  for (const cli_option *option = cli_options_all; option->id; option++) {
    if (option->group) group = option->group;
    if (!(option->programs & program->bit) || !option->help) continue;
    if (verb && !cli_option_has_verb(option, verb)) continue;
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
