/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/arguments.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"
#include "cli/lock/held.h"

#define GRACE (10 * AL_SECOND)
#define GRACE_OF_PROOF (8 * AL_SECOND) /* of a quorum mutex */

/* ---- functions for rows ----------------------------------------------------------------------------------------- */

static void take_kind(void *options, const cli_option *option, char *value) {
  cli_options *given = options;
  al_lock_kind kind = (al_lock_kind)option->least;
  (void)value;
  if (given->has_kind && given->kind != kind)
    cli_usage_error(
        "options -S (--slots), -P (--permits), -r, -W and --fast name different locks: give one of them");
  given->has_kind = true;
  given->kind = kind;
}

/* `least` of the row is the kind. */
static void take_amount(void *options, const cli_option *option, char *value) {
  take_kind(options, option, NULL);
  *CLI_FIELD(int) = cli_value_number(option, value, 1, AL_SLOTS_MAX);
}

static void set_timeout(cli_options *options, int64_t timeout) {
  if (options->has_timeout && (timeout == 0) != (options->timeout == 0))
    cli_usage_error("options -w (--timeout) and -n (--nonblock) contradict each other: give one of them");
  options->has_timeout = true;
  options->timeout = timeout;
}

static void take_timeout(void *options, const cli_option *option, char *value) {
  set_timeout(options, cli_value_seconds(option, value));
}

static void take_nonblock(void *options, const cli_option *option, char *value) {
  (void)option, (void)value;
  set_timeout(options, 0);
}

static void take_on_lost(void *options, const cli_option *option, char *value) {
  static const char *const actions[] = {"term", "kill", "ignore", NULL};
  ((cli_options *)options)->on_lost = (cli_on_lost)cli_value_word(option, value, actions);
}

static void take_restart(void *options, const cli_option *option, char *value) {
  cli_options *given = options;
  (void)option, (void)value;
  given->restarts = given->patient = true;
}

static void take_on_revoke(void *options, const cli_option *option, char *value) {
  ((cli_options *)options)->revoke_signal =
      strcmp(value, "ignore") == 0 ? 0 : cli_value_signal(option, value);
}

static void take_status_fd(void *options, const cli_option *option, char *value) {
  int fd = cli_value_number(option, value, 0, 1 << 20);
  if (fcntl(fd, F_GETFD) < 0) cli_usage_error("option --status-fd: descriptor %d is not open", fd);
  ((cli_options *)options)->status_fd = fd;
}

static void take_nothing(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
}

static void take_version(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
  printf("amqp-lock %s\n", al_version());
  cli_finish(0);
}

static void take_help(void *options, const cli_option *option, char *value);

/* Options of flock(1) that mean something else here. */

static void refuse_flock(const cli_option *option, const char *instead) {
  char words[64];
  cli_usage_error("option %s of flock is not for this program: %s", cli_option_words(option, words), instead);
}

static void refuse_shared(void *options, const cli_option *option, char *value) {
  (void)options, (void)value;
  refuse_flock(option, "to share NAME with other readers, use -r (--read)");
}

static void refuse_exclusive(void *options, const cli_option *option, char *value) {
  (void)options, (void)value;
  refuse_flock(
      option,
      "a mutex is exclusive without an option; to exclude readers (-r) of NAME as well, use -W (--write)");
}

static void refuse_unlock(void *options, const cli_option *option, char *value) {
  (void)options, (void)value;
  refuse_flock(option, "NAME is released when COMMAND ends; there is no option for it");
}

static void refuse_no_fork(void *options, const cli_option *option, char *value) {
  (void)options, (void)value;
  refuse_flock(option,
               "this program must stay while COMMAND runs, because its connection holds the lock; leave the "
               "option out");
}

static void refuse_shell_line(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
  cli_usage_error("option -c stands behind NAME: amqp-lock NAME -c 'SHELL LINE'");
}

/* ---- the table of options --------------------------------------------------------------------------------------- */

#define AT(field) .at = offsetof(cli_options, field)
#define FLAG(field) .take = cli_take_flag, AT(field)
#define KIND(kind) .take = take_kind, .least = (kind)

// clang-format off
static const cli_option rows[] = {
  {"semaphore", 'S', .help = "a slot of semaphore NAME", KIND(AL_LOCK_SLOT),
   .group = "Which lock (without: the mutex NAME)"},
  {"slots", 0, "N", "create the semaphore with N slots if there is none", take_amount, AT(slots), .least = AL_LOCK_SLOT},
  {"permit", 'P', .help = "a permit of token semaphore NAME", KIND(AL_LOCK_PERMIT)},
  {"permits", 0, "N", "create the token semaphore with N permits if there is none", take_amount, AT(permits),
   .least = AL_LOCK_PERMIT},
  {"quorum", .help = "the semaphore or the fast mutex consists of quorum queues", FLAG(quorum)},
  {"read", 'r', .help = "the readers-writer lock NAME, as one of its readers", KIND(AL_LOCK_READ)},
  {"write", 'W', .help = "the readers-writer lock NAME, as its only writer", KIND(AL_LOCK_WRITE)},
  {"fast", .help = "the fast mutex NAME, another lock than the mutex NAME", KIND(AL_LOCK_FAST_MUTEX)},
  {"fenced", .help = "with a fencing token for COMMAND: AMQP_LOCK_FENCE", FLAG(fenced)},
  {"count", 0, "K", "K slots or permits at once, or none", cli_take_number, AT(count), 1, CLI_HELD_MOST},
  {"all", 0, "LIST", "in place of NAME: KIND:NAME[,KIND:NAME...], all or none", cli_take_text, AT(name)},

  {"timeout", 'w', "S", "wait for at most S seconds (for ever)", take_timeout, .group = "Acquiring it"},
  {"nonblock", 'n', .help = "do not wait", .take = take_nonblock},
  {"conflict-exit-code", 'E', "N", "exit status if it was not acquired in time (75)", cli_take_number,
   AT(conflict_status), 0, 255},
  {"take-over", .help = "ask the holder of the mutex to release it", FLAG(takes_over)},
  {"settle", 0, "S", "if the last lock was not released, wait until S seconds after its end", cli_take_seconds, AT(settle)},
  {"wait-broker", .help = "wait for a broker that is away, too", FLAG(patient)},
  {"fair", .help = "queue behind all that wait already", FLAG(fair)},
  {"priority", 0, "N", "waiters with a higher number are served first (0)", cli_take_number, AT(priority), -32768, 32767},
  {"poll", 0, "S", "seconds between searches while waiting (5)", cli_take_seconds, AT(poll)},
  {"random", .help = "take a random one of the first 16 free slots", FLAG(random)},

  {"hold", .help = "run no command: hold it until the input ends", FLAG(hold), .group = "While it is held"},
  {"at-least", 0, "S", "hold it for S seconds, also if COMMAND ends sooner", cli_take_seconds, AT(at_least)},
  {"at-most", 0, "S", "end COMMAND when it was held for S seconds; exit status 124", cli_take_seconds, AT(at_most)},
  {"on-lost", 0, "ACTION", "what COMMAND gets when it is lost: term, kill, ignore (term)", .take = take_on_lost},
  {"restart", .help = "when it was lost, acquire it again, and run COMMAND again", .take = take_restart},
  {"grace", 0, "S", "seconds from TERM to KILL (10, or one heartbeat if that is less)", cli_take_seconds, AT(grace)},
  {"lost-exit-code", 0, "N", "exit status if it was lost (76)", cli_take_number, AT(lost_status), 0, 255},
  {"on-revoke", 0, "ACTION", "a signal for COMMAND when it is asked back, or ignore (ignore)", .take = take_on_revoke},
  {"no-guard", .help = "run no second process that ends COMMAND if this one is killed", .take = cli_take_no, AT(has_guard)},
  {"foreground", .help = "COMMAND stays in this process group", FLAG(foreground)},

  CLI_BROKER_OPTIONS(cli_options, NULL),

  CLI_TELLING,
  {"status-fd", 0, "N", "write JSON lines to descriptor N", .take = take_status_fd},
  {"held-file", 0, "PATH", "a file that exists while it is held", cli_take_text, AT(held_file)},
  {"notify", .help = "tell systemd: READY=1 once it is held", FLAG(notify)},
  {"version", 'V', .help = "print the version", .take = take_version},
  {"help", 'h', .help = "print this", .take = take_help},

  {"close", 'o', .help = "accepted for flock(1): COMMAND never has the lock's descriptors", .take = take_nothing,
   .group = "As in flock(1)"},
  {"shared", 's', .take = refuse_shared},
  {"exclusive", 'x', .take = refuse_exclusive},
  {.letter = 'e', .take = refuse_exclusive},
  {"unlock", 'u', .take = refuse_unlock},
  {"no-fork", 'F', .take = refuse_no_fork},
  {.letter = 'c', .take = refuse_shell_line},
  {0},
};
// clang-format on

static const cli_program program = {.name = "amqp-lock", .options = rows};

static void take_help(void *options, const cli_option *option, char *value) {
  (void)options, (void)option, (void)value;
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
        "  77 not allowed          78 TLS, foreign queue     124 ended by --at-most\n"
        "  126, 127 COMMAND cannot be run, is not there\n",
        stdout);
  cli_finish(0);
}

/* ---- what fits together ----------------------------------------------------------------------------------------- */

static void check_kind(const cli_options *options) {
  if (options->fenced && options->kind == AL_LOCK_PERMIT && !options->quorum)
    cli_usage_error("option --fenced: only permits of a quorum queue have fencing tokens; add --quorum");
  if (options->fenced && options->kind == AL_LOCK_FAST_MUTEX)
    cli_usage_error(
        "option --fenced: a fast mutex has no fencing tokens; a token semaphore of one permit has, "
        "with -P --quorum --fenced");
  bool is_of_tokens = options->kind == AL_LOCK_PERMIT || options->kind == AL_LOCK_FAST_MUTEX;
  if (options->quorum && !is_of_tokens && options->slots == 0)
    cli_usage_error("option --quorum is for -P, --fast, and for semaphores that --slots creates");
  if (options->random && options->kind != AL_LOCK_SLOT) cli_usage_error("option --random is for -S");
  if (options->takes_over && options->kind != AL_LOCK_MUTEX)
    cli_usage_error(
        "option --take-over is for a mutex: holders of other locks are asked by amqp-lock-admin revoke");
  if (options->takes_over && options->timeout == 0)
    cli_usage_error("option --take-over waits until the holder has ended, so -n is not for it: give -w S");
  if (options->settle > 0 && options->kind != AL_LOCK_MUTEX && options->kind != AL_LOCK_FAST_MUTEX)
    cli_usage_error("option --settle is for mutexes");
  if (options->count > 1 && options->kind != AL_LOCK_SLOT && options->kind != AL_LOCK_PERMIT)
    cli_usage_error("option --count is for -S and -P: other locks have one holder");
}

/* Refuses the options for one lock. */
static void check_all(const cli_options *options) {
  if (options->has_kind || options->quorum)
    cli_usage_error(
        "option --all: the kinds of the locks stand in its list, such as --all slot:images,mutex:db");
  if (options->fenced) cli_usage_error("option --fenced is for one lock, and not for --all");
  if (options->takes_over) cli_usage_error("option --take-over is for one lock, and not for --all");
  if (options->settle > 0) cli_usage_error("option --settle is for one lock, and not for --all");
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
 * the earliest; that of a quorum mutex, 12 s after the queue's last answer. */
static void check_grace(cli_options *options) {
  bool is_given = options->grace >= 0, is_proved = options->quorum && options->kind == AL_LOCK_FAST_MUTEX;
  int64_t most = options->heartbeat = cli_broker_heartbeat(&options->broker);
  if (is_proved && GRACE_OF_PROOF < most) most = GRACE_OF_PROOF;
  if (options->hold || options->on_lost == CLI_LOST_IGNORE) options->has_guard = false;
  if (!is_given) options->grace = options->has_guard && GRACE > most ? most : GRACE;
  if (options->has_guard && options->grace > most)
    cli_usage_error(
        is_proved
            ? "option --grace: more than %d s needs --no-guard"
            : "option --grace: more than one heartbeat (%d s) needs a longer --heartbeat, or --no-guard",
        (int)(most / AL_SECOND));
  options->lost_grace = options->on_lost == CLI_LOST_KILL ? 0 : options->grace;
}

static void check_restart(const cli_options *options) {
  if (!options->restarts) return;
  if (options->hold) cli_usage_error("option --restart is for a COMMAND, and not for --hold");
  if (options->on_lost == CLI_LOST_IGNORE)
    cli_usage_error("options --restart and --on-lost ignore contradict each other: give one of them");
}

static void check_times(const cli_options *options) {
  if (options->at_most > 0 && options->at_least > options->at_most)
    cli_usage_error("option --at-least is more than --at-most");
  if (options->at_least > 0 && options->hold)
    cli_usage_error("option --at-least is for a COMMAND, and not for --hold");
  if (options->at_least > 0 && options->restarts)
    cli_usage_error("options --at-least and --restart contradict each other: give one of them");
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
  *options = (cli_options){.kind = AL_LOCK_MUTEX,
                           .timeout = AL_NEVER,
                           .poll = -1,
                           .conflict_status = CLI_EXIT_CONFLICT,
                           .has_guard = true,
                           .grace = -1,
                           .lost_status = CLI_EXIT_LOST,
                           .count = 1,
                           .status_fd = -1};
  int first = cli_arguments_read(&program, argc, argv, options);
  if (options->poll == 0) cli_usage_error("option --poll takes more than 0 seconds");
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
  check_times(options);
  cli_broker_settle(&options->broker, options->command ? options->command[0] : "amqp-lock");
  check_grace(options);
}
