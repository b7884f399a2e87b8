/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/arguments.h"
#include "cli/common/exits.h"
#include "cli/common/nearest.h"
#include "cli/common/report.h"

#define INTERVAL_LEAST (AL_SECOND / 10) /* answers of the management API cost the broker much */

#define SOURCES                                                                                              \
  "Asks the management API of --api or of AMQP_URL's broker, or else rabbitmqctl on the broker's machine."

static const admin_verb verbs[] = {
    {ADMIN_CREATE, "create", "NAME N", 2, 2, 1, "create a semaphore of N slots, or with -P of N permits",
     "Fails with \"exists\" (status 78) if there is one. \"resize\" creates or changes."},
    {ADMIN_ADD, "add", "NAME N", 2, 2, 1, "add N slots, or permits", NULL},
    {ADMIN_REMOVE, "remove", "NAME N", 2, 2, 1, "remove N slots, or permits",
     "Holders of removed slots keep them until they release. With --wait it returns when they have; with "
     "--revoke\n"
     "they are asked. Permits are taken when they are free; --wait gives their holders time."},
    {ADMIN_RESIZE, "resize", "NAME N", 2, 2, 0, "make it N slots, or permits; create it if there is none",
     "Holders of removed slots keep them until they release. With --wait it returns when they have; with "
     "--revoke\n"
     "they are asked. 0 deletes it."},
    {ADMIN_DESTROY, "destroy", "NAME", 1, 1, 0, "delete a semaphore",
     "Holders of slots keep them until they release. With -P and without --wait holders lose their permits. "
     "The\n"
     "fence stays unless --fence is given."},
    {ADMIN_REPAIR, "repair", "NAME", 1, 1, 0, "mend slots, doorbell or permits",
     "Makes the number of permits, and of tokens in the doorbell, what it should be. --fence mends the "
     "fence, too."},
    {ADMIN_SLOTS, "slots", "NAME", 1, 1, 0, "print the number of slots, or permits", NULL},
    {ADMIN_STATUS, "status", "NAME", 1, 1, 0, "print which slots, or how many permits, are held",
     "Who holds them: \"amqp-lock-admin who\". With -m, -r, -W and --fast it asks as that does."},
    {ADMIN_REVOKE, "revoke", "NAME [N]", 1, 2, 1, "ask the holder of slot N to release; with -m, -r, -W no N",
     "The holder decides: \"amqp-lock --on-revoke\", or revoked() of the library. With --wait it returns "
     "when the\n"
     "lock is released (status 75 if it is not). Without a holder it fails with \"not_held\" (status 70)."},
    {ADMIN_FORGET_FENCE, "forget-fence", "NAME", 1, 1, 0,
     "delete the fence of a lock that is not used any more",
     "Fencing tokens begin anew, with the time in microseconds."},
    {ADMIN_WATCH, "watch", "NAME", 1, 1, 0, "print the status when it changes, until a signal",
     "Asks once a second. A broker that is away is waited for."},
    {ADMIN_WHO, "who", "NAME", 1, 1, 0, "show who holds NAME, who waits, and the commands that end that",
     SOURCES},
    {ADMIN_LS, "ls", "[FILE...]", 0, 0, 0, "show who holds and who waits, for all locks",
     "The files are JSON of the management API, or of \"rabbitmqctl --formatter=json\"; \"-\" is standard "
     "input.\n"
     "Without files: " SOURCES},
    {ADMIN_HOLDERS, "holders", "[FILE...]", 0, 0, 0, "print the commands that close the holders' connections",
     "Reads what \"ls\" reads. Nothing is closed until a shell runs a line. A holder whose connection is "
     "closed\n"
     "is told (\"lost\"), but may still be at work when the next one has the lock: see \"revoke\"."},
    {ADMIN_TOP, "top", "", 0, 0, 0, "show who holds and who waits, from the management API, every 2 seconds",
     "Shows what \"ls\" shows, until a signal comes. On a terminal each table is drawn over the former. The "
     "user of\n"
     "the API needs the tag \"monitoring\", and permissions in the virtual hosts. Waiters, and holders of "
     "permits and\n"
     "fast mutexes, are as old as the broker's statistics: up to 5 s."},
};
#define VERBS (sizeof verbs / sizeof *verbs)

/* ---- the table of options --------------------------------------------------------------------------------------- */

static void take_lock(void *options, const cli_option *option, char *value) {
  admin_options *given = options;
  admin_lock lock = (admin_lock)option->least;
  (void)value;
  if (given->lock != ADMIN_SEMAPHORE && given->lock != lock)
    cli_usage_error("options -P, -m, -r, -W and --fast name different locks: give one of them");
  given->lock = lock;
}

static void take_interval(void *options, const cli_option *option, char *value) {
  cli_take_seconds(options, option, value);
  if (((admin_options *)options)->interval < INTERVAL_LEAST)
    cli_usage_error("option --interval takes at least 0.1 seconds");
}

/* The address of the management API. One without a path gets the path that RabbitMQ serves it at. */
static void take_api(void *options, const cli_option *option, char *value) {
  char **api = CLI_FIELD(char *);
  char *given = cli_value_secret(value), *host = strstr(given, "://");
  size_t length = strlen(given);
  while (length > 0 && given[length - 1] == '/') given[--length] = '\0';
  bool has_path = host && strchr(host + strlen("://"), '/');
  free(*api);
  if (asprintf(api, "%s%s", given, host && !has_path ? "/api" : "") < 0) cli_fail_no_memory();
  free(given);
}

#define OF_BROKER                                                                                            \
  "create add remove resize destroy repair slots status revoke forget-fence watch who ls holders top"
#define OF_LOCKS "revoke forget-fence status"
#define AT(field) .at = offsetof(admin_options, field)
#define FLAG(field) .take = cli_take_flag, AT(field)
#define LOCK(lock) .take = take_lock, .least = (lock)

// clang-format off
static const cli_option rows[] = {
  {"permits", 'P', .help = "NAME is a token semaphore, N are permits", LOCK(ADMIN_PERMITS),
   .verbs = "create add remove resize destroy repair slots status watch",
   .group = "Which lock (without: the semaphore NAME)"},
  {"mutex", 'm', .help = "the mutex NAME", LOCK(ADMIN_MUTEX), .verbs = OF_LOCKS},
  {"read", 'r', .help = "the readers-writer lock NAME; revoke, status: its readers", LOCK(ADMIN_READERS),
   .verbs = OF_LOCKS},
  {"write", 'W', .help = "the readers-writer lock NAME; revoke, status: its writer", LOCK(ADMIN_WRITER),
   .verbs = OF_LOCKS},
  {"fast", .help = "the fast mutex NAME", LOCK(ADMIN_FAST_MUTEX), .verbs = "status"},

  {"quorum", .help = "create quorum queues; repair -P: they are quorum queues", FLAG(quorum), .group = "How",
   .verbs = "create add resize repair"},
  {"wait", 0, "S", "wait for holders to release, for at most S seconds", cli_take_seconds, AT(wait),
   .verbs = "add remove resize destroy repair revoke"},
  {"revoke", .help = "ask the holders of removed slots to release", FLAG(revoke), .verbs = "remove resize destroy"},
  {"fence", .help = "make, or mend, the fence; destroy: delete it, too", FLAG(fence),
   .verbs = "create resize repair destroy"},
  {"timeout", 'w', "S", "seconds for the action, and for another administrator (30)", cli_take_seconds, AT(timeout),
   .verbs = "create add remove resize destroy repair slots status"},
  {"timeout", 'w', "S", "who, ls, holders, top: for the answers of one source (10)", cli_take_seconds, AT(timeout),
   .verbs = "who ls holders top"},
  {"interval", 0, "S", "seconds between two tables (2)", take_interval, AT(interval), .verbs = "top"},
  {"once", .help = "print one table and end", FLAG(once), .verbs = "top"},

  {"json", .help = "the same as --json-output (ls FILE, holders: no effect)", FLAG(json), .group = "Input and output",
   .verbs = "who ls holders create add remove resize repair slots status watch top"},
  {"json-output", .help = "print JSON, an object a line", FLAG(json_output),
   .verbs = "who ls create add remove resize repair slots status watch top"},
  {"lock", 0, "NAME", "show locks of this name only", cli_take_text, AT(only), .verbs = "ls holders top"},
  {"api", 0, "URL", "the management API (that of the broker)", take_api, AT(api), .verbs = "who status ls holders top"},

  CLI_BROKER_OPTIONS(admin_options, OF_BROKER),

  CLI_TELLING,
  {"version", 'V', .help = "print the version", FLAG(has_version)},
  {"help", 'h', .help = "print this", FLAG(has_help)},
  {0},
};
// clang-format on

static const cli_program program = {.name = "amqp-lock-admin", .options = rows, .mixes = true};

/* ---- --help ----------------------------------------------------------------------------------------------------- */

static _Noreturn void print_help(void) {
  fputs("usage: amqp-lock-admin VERB [OPTION...] [NAME [N]]\n"
        "\n"
        "Administers locks in RabbitMQ, and shows who holds them.\n"
        "\n"
        "Verbs (amqp-lock-admin VERB --help):\n",
        stdout);
  for (size_t i = 0; i < VERBS; i++) {
    char left[64];
    snprintf(left, sizeof left, "  %s %s", verbs[i].name, verbs[i].operands);
    printf("%-24s %s\n", left, verbs[i].line);
  }
  putchar('\n');
  cli_options_print(&program, NULL, stdout);
  fputs("\n"
        "Exit status: 0, or\n"
        "  64 usage, URL or name   66 no such semaphore      69 no broker, or it cannot\n"
        "  70 not held, protocol   75 not in time, busy      76 lost meanwhile\n"
        "  77 not allowed          78 exists, TLS, foreign or damaged queue\n",
        stdout);
  cli_finish(0);
}

static _Noreturn void print_verb_help(const admin_verb *verb) {
  printf("usage: amqp-lock-admin %s [OPTION...]%s%s\n\n%s\n", verb->name, *verb->operands ? " " : "",
         verb->operands, verb->line);
  if (verb->text) printf("%s\n", verb->text);
  putchar('\n');
  cli_options_print(&program, verb->name, stdout);
  cli_finish(0);
}

/* ---- what fits together ----------------------------------------------------------------------------------------- */

static void check_options(const admin_options *options, const admin_verb *verb) {
  cli_arguments_check(&program, verb->name);
  if (options->lock == ADMIN_PERMITS && options->revoke)
    cli_usage_error("option --revoke: holders of permits cannot be asked; --wait waits for them");
  if (options->lock == ADMIN_PERMITS && options->fence)
    cli_usage_error("option --fence: a token semaphore has no fence");
  if (options->lock != ADMIN_PERMITS && options->wait > 0 &&
      (verb->id == ADMIN_ADD || verb->id == ADMIN_REPAIR))
    cli_usage_error("option --wait of \"%s\" is for permits (-P)", verb->name);
  if (verb->id == ADMIN_TOP && (options->json || options->json_output) && !options->once)
    cli_usage_error("\"top\" prints JSON with option --once");
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

static const admin_verb *find_verb(const char *name) {
  for (size_t i = 0; i < VERBS; i++)
    if (strcmp(name, verbs[i].name) == 0) return &verbs[i];
  if (strcmp(name, "break") == 0)
    cli_usage_error("there is no verb \"break\": \"revoke\" asks a holder, \"holders\" prints how to close "
                    "its connection");
  cli_nearest nearest = cli_nearest_to(name, strlen(name));
  for (size_t i = 0; i < VERBS; i++) cli_nearest_offer(&nearest, verbs[i].name);
  cli_usage_error("there is no verb \"%s\"%s%s", name, nearest.known ? "; did you mean " : "",
                  nearest.known ? nearest.known : "");
}

static int read_number(const admin_verb *verb, const char *text) {
  char *end;
  long number = strtol(text, &end, 10);
  bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && strlen(text) <= 9;
  if (!is_number || number < verb->from || number > AL_SLOTS_MAX)
    cli_usage_error("\"%s\": N is a whole number from %d to %d, not \"%s\"", verb->name, verb->from,
                    AL_SLOTS_MAX, text);
  return (int)number;
}

static void read_operands(admin_options *options, int count, char **operands) {
  const admin_verb *verb = options->verb;
  char why[AL_MESSAGE_SIZE];
  bool is_alone =
      options->lock == ADMIN_MUTEX || options->lock == ADMIN_READERS || options->lock == ADMIN_WRITER;
  options->files = verb->most == 0 ? operands : operands + count;
  if (verb->id == ADMIN_TOP && count > 0)
    cli_usage_error("\"top\" takes no operands; --lock NAME shows one lock");
  if (verb->most == 0) return;
  if (count < verb->least || count > verb->most)
    cli_usage_error("\"%s\" takes %s, not %d operands", verb->name, verb->operands, count);
  options->name = operands[0];
  if (!al_name_check(options->name, strlen(options->name), why)) cli_usage_error("%s", why);
  if (count == 2) options->number = read_number(verb, operands[1]);
  if (verb->id == ADMIN_REVOKE && is_alone && count == 2)
    cli_usage_error("\"revoke\" with -m, -r or -W takes NAME alone");
  if (verb->id == ADMIN_REVOKE && !is_alone && count == 1)
    cli_usage_error("\"revoke\" takes the number of a slot, or -m, -r or -W");
}

void admin_options_read(admin_options *options, int argc, char **argv) {
  *options = (admin_options){.number = -1, .timeout = -1, .interval = 2 * AL_SECOND};
  int first = cli_arguments_read(&program, argc, argv, options);
  if (options->has_version) {
    printf("amqp-lock-admin %s\n", al_version());
    cli_finish(0);
  }
  if (first == argc && options->has_help) print_help();
  if (first == argc) cli_usage_error("there is no verb");
  options->verb = find_verb(argv[first]);
  if (options->has_help) print_verb_help(options->verb);
  check_options(options, options->verb);
  read_operands(options, argc - first - 1, argv + first + 1);
}
