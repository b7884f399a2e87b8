/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/exits.h"
#include "cli/held.h"
#include "cli/report.h"

#define GRACE (10 * AL_SECOND)

static const cli_program program = {.name = "amqp-lock", .bit = CLI_LOCK};

typedef struct reading {
  cli_options *options;
  bool has_grace, has_wait;
} reading;

/* ---- --help ----------------------------------------------------------------------------------------------------- */

static void print_help(void) {
  fputs("usage: amqp-lock [OPTION...] NAME COMMAND [ARG...]\n"
        "       amqp-lock [OPTION...] NAME -c 'SHELL LINE'\n"
        "       amqp-lock --hold [OPTION...] NAME\n"
        "       amqp-lock --all KIND:NAME[,KIND:NAME...] [OPTION...] COMMAND [ARG...]\n"
        "\n"
        "Runs COMMAND while it holds a lock in RabbitMQ, and ends COMMAND when the lock is lost.\n"
        "\n",
        stdout);
  cli_options_print(&program, NULL, stdout);
  fputs("\n"
        "Exit status: that of COMMAND, 128 plus the signal that ended it, or\n"
        "  64 usage, URL or name   66 no such semaphore      69 no broker, or it cannot\n"
        "  70 protocol, system     75 not had in time (-E)   76 lost (--lost-exit-code)\n"
        "  77 not allowed          78 TLS, foreign queue     126, 127 COMMAND cannot be run, is not there\n",
        stdout);
  cli_finish(0);
}

static void print_version(void) {
  printf("amqp-lock %s\n", al_version());
  cli_finish(0);
}

/* ---- options of flock(1) that mean something else here ----------------------------------------------------------- */

static const char *instead_of(const cli_option *option) {
  switch (option->id) {
    case CLI_SHARED:
      return "to share NAME with other readers, use -r (--read)";
    case CLI_UNLOCK:
      return "NAME is released when COMMAND ends; there is no option for it";
    case CLI_NO_FORK:
      return "this program must stay while COMMAND runs, because its connection holds the lock; leave the "
             "option out";
    default:
      return "a mutex is exclusive without an option; to exclude readers (-r) of NAME as well, use -W "
             "(--write)";
  }
}

static void refuse_flock(const cli_option *option) {
  char words[64];
  cli_usage_error("option %s of flock is not for this program: %s", cli_option_words(option, words),
                  instead_of(option));
}

/* ---- taking options --------------------------------------------------------------------------------------------- */

static void take_kind(cli_options *options, al_lock_kind kind) {
  if (options->has_kind && options->kind != kind)
    cli_usage_error(
        "options -S (--slots), -P (--permits), -r, -W and --fast name different locks: give one of them");
  options->has_kind = true;
  options->kind = kind;
}

/* Returns false if the option is none of these. */
static bool take_which(cli_options *options, const cli_option *option, char *value) {
  switch (option->id) {
    case CLI_SEMAPHORE:
      take_kind(options, AL_LOCK_SLOT);
      break;
    case CLI_PERMIT:
      take_kind(options, AL_LOCK_PERMIT);
      break;
    case CLI_READ:
      take_kind(options, AL_LOCK_READ);
      break;
    case CLI_WRITE:
      take_kind(options, AL_LOCK_WRITE);
      break;
    case CLI_FAST:
      take_kind(options, AL_LOCK_FAST_MUTEX);
      break;
    case CLI_SLOTS:
      take_kind(options, AL_LOCK_SLOT);
      options->slots = cli_value_number(option, value, 1, AL_SLOTS_MAX);
      break;
    case CLI_PERMITS:
      take_kind(options, AL_LOCK_PERMIT);
      options->permits = cli_value_number(option, value, 1, AL_SLOTS_MAX);
      break;
    case CLI_QUORUM:
      options->quorum = true;
      break;
    case CLI_FENCED:
      options->fenced = true;
      break;
    case CLI_COUNT:
      options->count = cli_value_number(option, value, 1, CLI_HELD_MOST);
      break;
    case CLI_ALL:
      options->name = value;
      break;
    default:
      return false;
  }
  return true;
}

static void take_wait(reading *read, int64_t timeout) {
  if (read->has_wait && (timeout == 0) != (read->options->timeout == 0))
    cli_usage_error("options -w (--timeout) and -n (--nonblock) contradict each other: give one of them");
  read->has_wait = true;
  read->options->timeout = timeout;
}

static bool take_acquiring(reading *read, const cli_option *option, const char *value) {
  cli_options *options = read->options;
  switch (option->id) {
    case CLI_TIMEOUT:
      take_wait(read, cli_value_seconds(option, value));
      break;
    case CLI_NONBLOCK:
      take_wait(read, 0);
      break;
    case CLI_CONFLICT_STATUS:
      options->conflict_status = cli_value_number(option, value, 0, 255);
      break;
    case CLI_WAIT_BROKER:
      options->patient = true;
      break;
    case CLI_FAIR:
      options->fair = true;
      break;
    case CLI_PRIORITY:
      options->priority = cli_value_number(option, value, -32768, 32767);
      break;
    case CLI_POLL:
      options->poll = cli_value_seconds(option, value);
      break;
    case CLI_RANDOM:
      options->random = true;
      break;
    default:
      return false;
  }
  if (options->poll == 0) cli_usage_error("option --poll takes more than 0 seconds");
  return true;
}

static int revoke_signal(const cli_option *option, const char *value) {
  return strcmp(value, "ignore") == 0 ? 0 : cli_value_signal(option, value);
}

static bool take_holding(reading *read, const cli_option *option, const char *value) {
  static const char *const actions[] = {"term", "kill", "ignore", NULL};
  cli_options *options = read->options;
  switch (option->id) {
    case CLI_HOLD:
      options->hold = true;
      break;
    case CLI_ON_LOST:
      options->on_lost = (cli_on_lost)cli_value_word(option, value, actions);
      break;
    case CLI_RESTART:
      options->restarts = options->patient = true;
      break;
    case CLI_GRACE:
      options->grace = cli_value_seconds(option, value);
      read->has_grace = true;
      break;
    case CLI_LOST_STATUS:
      options->lost_status = cli_value_number(option, value, 0, 255);
      break;
    case CLI_ON_REVOKE:
      options->revoke_signal = revoke_signal(option, value);
      break;
    case CLI_NO_GUARD:
      options->has_guard = false;
      break;
    case CLI_FOREGROUND:
      options->foreground = true;
      break;
    default:
      return false;
  }
  return true;
}

static int open_descriptor(const cli_option *option, const char *value) {
  int fd = cli_value_number(option, value, 0, 1 << 20);
  if (fcntl(fd, F_GETFD) < 0) cli_usage_error("option --status-fd: descriptor %d is not open", fd);
  return fd;
}

static void take_telling(cli_options *options, const cli_option *option, char *value) {
  switch (option->id) {
    case CLI_VERBOSE:
      cli_report_level(CLI_LEVEL_PROGRESS);
      break;
    case CLI_QUIET:
      cli_report_level(CLI_LEVEL_ERRORS);
      break;
    case CLI_STATUS_FD:
      options->status_fd = open_descriptor(option, value);
      break;
    case CLI_NOTIFY:
      options->notify = true;
      break;
    case CLI_VERSION:
      print_version();
      break;
    case CLI_HELP:
      print_help();
      break;
    case CLI_CLOSE:
      break;
    default:
      refuse_flock(option);
  }
}

static void take(void *context, const cli_option *option, char *value) {
  reading *read = context;
  if (take_which(read->options, option, value) || take_acquiring(read, option, value) ||
      take_holding(read, option, value) || cli_broker_option(&read->options->broker, option, value))
    return;
  take_telling(read->options, option, value);
}

/* ---- what fits together ----------------------------------------------------------------------------------------- */

static void check_kind(const cli_options *options) {
  if (options->fenced && options->kind == AL_LOCK_PERMIT && !options->quorum)
    cli_usage_error("option --fenced: only permits of a quorum queue have fencing tokens; add --quorum");
  if (options->fenced && options->kind == AL_LOCK_FAST_MUTEX)
    cli_usage_error(
        "option --fenced: a fast mutex has no fencing tokens; a token semaphore of one permit has, "
        "with -P --quorum --fenced");
  if (options->quorum && options->kind != AL_LOCK_PERMIT && options->slots == 0)
    cli_usage_error("option --quorum is for -P, and for semaphores that --slots creates");
  if (options->random && options->kind != AL_LOCK_SLOT) cli_usage_error("option --random is for -S");
  if (options->count > 1 && options->kind != AL_LOCK_SLOT && options->kind != AL_LOCK_PERMIT)
    cli_usage_error("option --count is for -S and -P: other locks have one holder");
}

/* Refuses the options for one lock. */
static void check_all(const cli_options *options) {
  if (options->has_kind || options->quorum)
    cli_usage_error(
        "option --all: the kinds of the locks stand in its list, such as --all slot:images,mutex:db");
  if (options->fenced) cli_usage_error("option --fenced is for one lock, and not for --all");
  if (options->count > 1) cli_usage_error("option --count is for one lock, and not for --all");
}

static void check_name(const cli_options *options) {
  char why[AL_MESSAGE_SIZE];
  if (!al_name_check(options->name, strlen(options->name), why)) {
    cli_error("%s", why);
    exit(CLI_EXIT_USAGE);
  }
}

/* The guard needs the grace before the certainty ends, which it does 1.45 heartbeats after the broker's last answer at
 * the earliest. */
static void check_grace(reading *read) {
  cli_options *options = read->options;
  int64_t beat = options->heartbeat = cli_broker_heartbeat(&options->broker);
  if (options->hold || options->on_lost == CLI_LOST_IGNORE) options->has_guard = false;
  if (!read->has_grace && options->has_guard && options->grace > beat) options->grace = beat;
  if (options->has_guard && options->on_lost == CLI_LOST_TERM && options->grace > beat)
    cli_usage_error(
        "option --grace: more than one heartbeat (%d s) needs a longer --heartbeat, or --no-guard",
        (int)(beat / AL_SECOND));
  if (options->on_lost == CLI_LOST_KILL) options->grace = 0;
}

static void check_restart(const cli_options *options) {
  if (!options->restarts) return;
  if (options->hold) cli_usage_error("option --restart is for a COMMAND, and not for --hold");
  if (options->on_lost == CLI_LOST_IGNORE)
    cli_usage_error("options --restart and --on-lost ignore contradict each other: give one of them");
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

static bool is_number(const char *text) { return *text && text[strspn(text, "0123456789")] == '\0'; }

static char **shell_line(int count, char **operands) {
  static char *command[] = {"/bin/sh", "-c", NULL, NULL};
  if (count != 3)
    cli_usage_error("option -c takes one argument, a line for the shell, which must be the last one");
  command[2] = operands[2];
  return command;
}

static void check_descriptor(const cli_options *options) {
  bool is_standard = options->status_fd >= 0 && options->status_fd <= 2;
  if (is_standard && !options->hold)
    cli_usage_error("option --status-fd: descriptor %d is COMMAND's; use --status-fd 3 3>FILE",
                    options->status_fd);
}

static void take_command(cli_options *options, int count, char **operands) {
  if (options->hold && count > 1)
    cli_usage_error("option --hold runs no command: nothing stands behind NAME");
  if (options->hold) return;
  if (count == 1 && is_number(operands[0]))
    cli_usage_error("a descriptor (%s) cannot be locked: give NAME and COMMAND, or --hold and NAME",
                    operands[0]);
  if (count == 1) cli_usage_error("there is no COMMAND behind NAME (or use --hold)");
  if (strcmp(operands[1], "-c") == 0)
    options->command = shell_line(count, operands);
  else if (operands[1][0] == '-')
    cli_usage_error("options stand before NAME, and \"%s\" stands behind it", operands[1]);
  else
    options->command = operands + 1;
}

/* The list stands in place of NAME. */
static void take_all(cli_options *options, int count, char **operands) {
  static char list[4096];
  if (strlen(options->name) >= sizeof list) cli_usage_error("option --all: the list is too long");
  check_all(options);
  if (options->hold && count > 0)
    cli_usage_error("option --hold runs no command: nothing stands behind the options");
  if (!options->hold && count == 0) cli_usage_error("there is no COMMAND (or use --hold)");
  if (!options->hold) options->command = operands;
  strcpy(list, options->name);
  options->wishes_count = cli_wishes_read(list, options->wishes);
}

void cli_options_read(cli_options *options, int argc, char **argv) {
  reading read = {.options = options};
  *options = (cli_options){.kind = AL_LOCK_MUTEX,
                           .timeout = AL_NEVER,
                           .poll = -1,
                           .conflict_status = CLI_EXIT_CONFLICT,
                           .has_guard = true,
                           .grace = GRACE,
                           .lost_status = CLI_EXIT_LOST,
                           .count = 1,
                           .status_fd = -1};
  int first = cli_arguments_read(&program, argc, argv, take, &read);
  if (options->name) {
    take_all(options, argc - first, argv + first);
  } else {
    if (first == argc) cli_usage_error("there is no NAME");
    options->name = argv[first];
    take_command(options, argc - first, argv + first);
    check_name(options);
    options->wishes[0] = (cli_wish){.name = options->name, .kind = options->kind};
    options->wishes_count = 1;
  }
  check_kind(options);
  check_descriptor(options);
  check_restart(options);
  cli_broker_settle(&options->broker, options->command ? options->command[0] : "amqp-lock");
  check_grace(&read);
}
