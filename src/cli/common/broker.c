/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/broker.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/exits.h"
#include "cli/common/report.h"

#define URL_SIZE 16385 /* one byte more than the longest URL, so that a longer one is refused, not cut */
#define HOST_SHOWN 64  /* bytes of the host's name in the connection's, and as many of the command's */

static void forget(char *text) {
  if (text) explicit_bzero(text, strlen(text));
  free(text);
}

void cli_take_url(void *options, const cli_option *option, char *value) {
  char **url = CLI_FIELD(char *);
  forget(*url);
  *url = cli_value_secret(value);
}

/* ---- the URL ---------------------------------------------------------------------------------------------------- */

static _Noreturn void refuse_file(const char *path, const char *why) {
  cli_error("--url-file %s: %s", path, why);
  exit(CLI_EXIT_USAGE);
}

/* Returns the first line of the file, or NULL and why there is none. */
static char *read_file(const char *path, const char **why) {
  FILE *file = fopen(path, "re");
  *why = strerror(errno);
  if (!file) return NULL;
  char *line = calloc(1, URL_SIZE);
  if (!line) cli_fail_no_memory();
  setvbuf(file, NULL, _IONBF, 0); /* no second copy of the password */
  bool has_line = fgets(line, URL_SIZE, file) != NULL;
  *why = ferror(file) ? strerror(errno) : "the file is empty";
  fclose(file);
  line[strcspn(line, "\r\n")] = '\0';
  if (has_line) return line;
  free(line);
  return NULL;
}

/* A pipe, as a shell's <(command) is, can be read once. */
static bool is_file(const char *path) {
  struct stat what;
  return path && stat(path, &what) == 0 && S_ISREG(what.st_mode);
}

static char *find_url(const cli_broker *broker) {
  const char *from_environment = getenv("AMQP_URL");
  if (from_environment && !*from_environment) from_environment = NULL;
  char *url = NULL;
  if (broker->url && broker->url_file) cli_usage_error("options --url and --url-file contradict each other");
  if (broker->url_file) {
    const char *why;
    if (!(url = read_file(broker->url_file, &why))) refuse_file(broker->url_file, why);
    return url;
  }
  if (broker->url || from_environment) url = strdup(broker->url ? broker->url : from_environment);
  if ((broker->url || from_environment) && !url) cli_fail_no_memory();
  return url;
}

static void read_url(cli_broker *broker, char *url) {
  char why[AL_MESSAGE_SIZE];
  al_settings_init(&broker->nodes[0]);
  broker->count = url ? al_settings_urls(broker->nodes, AL_HOSTS_MAX, url, why) : 1;
  if (broker->count > 0) return;
  cli_error("%s: %s", al_code_name(AL_URL), why);
  exit(CLI_EXIT_USAGE);
}

/* ---- the name --------------------------------------------------------------------------------------------------- */

static void default_name(char *name, size_t size, const char *what) {
  char host[HOST_NAME_MAX + 1] = "localhost";
  const char *slash = strrchr(what, '/');
  gethostname(host, sizeof host);
  host[HOST_NAME_MAX] = '\0';
  snprintf(name, size, "%.*s[%d]@%.*s", HOST_SHOWN / 2, slash && slash[1] ? slash + 1 : what, (int)getpid(),
           HOST_SHOWN, host);
}

static void check(const al_settings *settings, const char *given) {
  char why[AL_MESSAGE_SIZE];
  bool is_long = given && strlen(given) >= sizeof settings->name;
  if (is_long) snprintf(why, sizeof why, "option --name takes at most %zu bytes", sizeof settings->name - 1);
  if (!is_long && al_settings_check(settings, why)) return;
  cli_error("%s", why);
  exit(CLI_EXIT_USAGE);
}

/* A name made of COMMAND and the host's may hold what no name may, or be cut in the middle of a character. */
static void mend(char *name) {
  for (; *name; name++)
    if (*name < ' ' || *name > '~') *name = '?';
}

static void name_connection(cli_broker *broker, const char *what) {
  al_settings *settings = &broker->nodes[0];
  char why[AL_MESSAGE_SIZE];
  if (broker->name)
    snprintf(settings->name, sizeof settings->name, "%s", broker->name);
  else
    default_name(settings->name, sizeof settings->name, what);
  if (!broker->name && !al_settings_check(settings, why)) mend(settings->name);
  check(settings, broker->name);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

void cli_broker_settle(cli_broker *broker, const char *what) {
  broker->nodes = calloc(AL_HOSTS_MAX, sizeof *broker->nodes);
  if (!broker->nodes) cli_fail_no_memory();
  char *url = find_url(broker);
  broker->is_default = url == NULL;
  read_url(broker, url);
  forget(url);
  forget(broker->url);
  broker->url = NULL;
  if (!is_file(broker->url_file)) broker->url_file = NULL;
  name_connection(broker, what);
  if (!broker->heartbeat) broker->heartbeat = broker->nodes[0].heartbeat;
  for (size_t i = 0; i < broker->count; i++) broker->nodes[i].heartbeat = broker->heartbeat;
}

void cli_broker_hint(const cli_broker *broker, al_code code) {
  if (code == AL_UNREACHABLE && broker->is_default)
    cli_error("AMQP_URL is not set, and neither --url nor --url-file is given");
}

/* ---- a file that changes ---------------------------------------------------------------------------------------- */

/* Reads the file again. Returns the number of nodes; 0, and why, if it has no good URL. */
static size_t read_again(const cli_broker *broker, al_settings nodes[AL_HOSTS_MAX],
                         char why[AL_MESSAGE_SIZE]) {
  const char *reason = "it is no file any more"; /* a pipe may take for ever to open */
  bool may_open = is_file(broker->url_file) || access(broker->url_file, F_OK) != 0;
  char *url = may_open ? read_file(broker->url_file, &reason) : NULL;
  snprintf(why, AL_MESSAGE_SIZE, "%s", url ? "" : reason);
  al_settings_init(&nodes[0]);
  size_t count = url ? al_settings_urls(nodes, AL_HOSTS_MAX, url, why) : 0;
  forget(url);
  for (size_t i = 0; i < count; i++) nodes[i].heartbeat = broker->heartbeat;
  return count;
}

/* A file that is written anew may be missing, or cut off, for a moment. */
void cli_broker_renew(const cli_broker *broker, al_session *session) {
  if (!broker->url_file || !al_native_connects(session)) return;
  char why[AL_MESSAGE_SIZE];
  al_settings *nodes = calloc(AL_HOSTS_MAX, sizeof *nodes);
  if (!nodes) cli_fail_no_memory();
  size_t count = read_again(broker, nodes, why);
  al_code code = count > 0 ? al_native_renew(session, nodes, count) : AL_OK;
  if (code == AL_NO_MEMORY) cli_fail_no_memory();
  if (code == AL_VHOST) snprintf(why, sizeof why, "it names another virtual host, which has other locks");
  if (*why) cli_warn("--url-file %s: %s; the URL from before is used", broker->url_file, why);
  explicit_bzero(nodes, AL_HOSTS_MAX * sizeof *nodes);
  free(nodes);
}

void cli_broker_wait(const cli_broker *broker, al_session *session, al_op *op) {
  cli_broker_renew(broker, session);
  al_native_wait(session, op);
}

al_code cli_broker_await(const cli_broker *broker, al_session *session, al_op *op,
                         char message[AL_MESSAGE_SIZE]) {
  while (op && !al_op_done(op)) cli_broker_wait(broker, session, op);
  return al_op_wait(session, op, message);
}

int64_t cli_broker_heartbeat(const cli_broker *broker) { return broker->nodes[0].heartbeat * AL_SECOND; }

al_session *cli_broker_session(const cli_broker *broker) {
  al_session *session = al_native_new_list(broker->nodes, broker->count);
  if (!session) cli_fail_no_memory();
  return session;
}

void cli_broker_forget(cli_broker *broker) {
  explicit_bzero(broker->nodes, broker->count * sizeof *broker->nodes);
  free(broker->nodes);
  broker->nodes = NULL;
}
