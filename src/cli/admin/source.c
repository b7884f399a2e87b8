/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/source.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/admin/api.h"
#include "cli/admin/columns.h"
#include "cli/admin/json.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

int64_t admin_source_timeout(const admin_options *options) {
  return options->timeout >= 0 ? options->timeout : 10 * AL_SECOND;
}

/* JSON has no NUL. Returns false, and why, if this is none, or no list of the broker. */
static bool read_json(FILE *file, admin_rows *rows, char why[AL_MESSAGE_SIZE]) {
  char *text = NULL;
  size_t size = 0;
  ssize_t length = getdelim(&text, &size, '\0', file);
  bool is_fine = length > 0 && admin_json_read(rows, text, (size_t)length, why);
  if (length < 0)
    snprintf(why, AL_MESSAGE_SIZE, "%s",
             ferror(file) ? strerror(errno) : "it is empty; did the command before it fail?");
  free(text);
  return is_fine;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void read_file(const char *path, admin_rows *rows) {
  char why[AL_MESSAGE_SIZE];
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  snprintf(why, sizeof why, "%s", strerror(errno));
  if (!file || !read_json(file, rows, why)) {
    cli_error("%s: %s%s", is_stdin ? "standard input" : path, why,
              file ? "; what is read is JSON, of the management API or of rabbitmqctl --formatter=json"
                   : "; \"who NAME\" shows one lock");
    exit(CLI_EXIT_USAGE);
  }
  if (!is_stdin) fclose(file);
}

/* ---- the management API ----------------------------------------------------------------------------------------- */

static bool has_netrc(void) {
  char path[4096];
  const char *home = getenv("HOME");
  snprintf(path, sizeof path, "%s/.netrc", home ? home : "");
  return access(path, R_OK) == 0;
}

char *admin_source_address(const admin_options *options, size_t node) {
  const al_settings *at = &options->broker.nodes[node];
  char *user = admin_url_escape(at->user), *password = admin_url_escape(at->password), *address;
  bool is_v6 = strchr(at->host, ':'),
       has_user = !at->external && !(options->broker.is_default && has_netrc());
  if (asprintf(&address, "http%s://%s%s%s%s%s%s%s:%d/api", at->tls ? "s" : "", has_user ? user : "",
               has_user ? ":" : "", has_user ? password : "", has_user ? "@" : "", is_v6 ? "[" : "", at->host,
               is_v6 ? "]" : "", at->tls ? 15671 : 15672) < 0)
    cli_fail_no_memory();
  if (*at->ca) setenv("SSL_CERT_FILE", at->ca, 1);
  free(user);
  free(password);
  return address;
}

void admin_source_hide_password(admin_options *options) {
  char *begin = options->api ? strstr(options->api, "://") : NULL;
  if (!begin) return;
  begin += strlen("://");
  char *at = memrchr(begin, '@', strcspn(begin, "/?#"));
  if (!at) return;
  if (!(options->api_user = strndup(begin, strcspn(begin, ":@")))) cli_fail_no_memory();
  memmove(begin, at + 1, strlen(at + 1) + 1);
}

static al_code read_api(admin_options *options, const char *address, admin_rows *rows,
                        char message[AL_MESSAGE_SIZE]) {
  admin_api *api = admin_api_new(address, admin_source_timeout(options));
  al_code code = admin_api_read(api, rows, message);
  if (code == AL_OK) cli_progress("told by %s", admin_api_address(api));
  if (code == AL_OK && !options->api && !(options->api = strdup(admin_api_address(api))))
    cli_fail_no_memory();
  if (code == AL_OK && admin_api_hidden(api)) cli_warn("%s", admin_api_hidden(api));
  if (code != AL_OK) admin_rows_drop(rows);
  admin_api_drop(api);
  return code;
}

/* ---- rabbitmqctl ------------------------------------------------------------------------------------------------ */

/* An address can be bound if it is this machine's. */
static bool is_here(const char *host) {
  struct addrinfo *address, hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM};
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  if (strcmp(host, "localhost") == 0 || strcmp(host, name) == 0) return true;
  if (getaddrinfo(host, NULL, &hints, &address) != 0) return false;
  int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool is_bound = fd >= 0 && bind(fd, address->ai_addr, address->ai_addrlen) == 0;
  if (fd >= 0) close(fd);
  freeaddrinfo(address);
  return is_bound;
}

/* `errors` is what it wrote to standard error. */
static void explain(int status, FILE *errors, char why[AL_MESSAGE_SIZE]) {
  char line[256] = "";
  rewind(errors);
  while (line[strspn(line, " \n")] == '\0' && fgets(line, sizeof line, errors)) continue;
  char *end = strstr(line, ". "); /* what follows is advice on lines that are not shown */
  line[end ? (size_t)(end - line) : strcspn(line, "\n")] = '\0';
  bool is_late = WEXITSTATUS(status) == 124 || WEXITSTATUS(status) == 137;
  snprintf(why, AL_MESSAGE_SIZE, is_late ? "no answer in time; -w gives it more" : "status %d: %s%s",
           WEXITSTATUS(status), line, geteuid() ? " (only root and rabbitmq may call it)" : "");
}

/* The names are those of json.c. timeout(1) ends all processes that rabbitmqctl consists of. A broker at another port than
 * the usual one may be another than that of rabbitmqctl. */
static bool read_ctl(const admin_options *options, admin_rows *rows, char why[AL_MESSAGE_SIZE]) {
  char line[1280], port[16] = "";
  const al_settings *at = &options->broker.nodes[0];
  double seconds = (double)admin_source_timeout(options) / (double)AL_SECOND;
  int written = memfd_create("errors", MFD_CLOEXEC);
  snprintf(
      line, sizeof line,
      "PATH=$PATH:/usr/sbin exec timeout -k 1 %.3f sh -ec 'list() { rabbitmqctl -q --formatter=json \"$@\"; "
      "}\n"
      "[ -z \"$AMQP_LOCK_PORT\" ] || list status | grep \"\\\"port\\\":$AMQP_LOCK_PORT[,}]\" >/dev/null || "
      "{\n"
      "echo \"its broker does not listen on port $AMQP_LOCK_PORT\" >&2; exit 1; }\n"
      "list list_queues -p \"$AMQP_LOCK_VHOST\" name arguments messages messages_ready "
      "messages_unacknowledged\n"
      "list list_consumers -p \"$AMQP_LOCK_VHOST\" queue_name channel_pid consumer_tag active arguments\n"
      "list list_channels pid name user messages_unacknowledged' </dev/null 2>/proc/%d/fd/%d",
      seconds > 0.001 ? seconds : 0.001, (int)getpid(), written);
  if (at->port != (at->tls ? 5671 : 5672)) snprintf(port, sizeof port, "%d", at->port);
  setenv("AMQP_LOCK_VHOST", at->vhost, 1);
  setenv("AMQP_LOCK_PORT", port, 1);
  FILE *errors = fdopen(written, "r"), *file = errors ? popen(line, "re") : NULL;
  if (!file) {
    snprintf(why, AL_MESSAGE_SIZE, "/bin/sh: %s", strerror(errno));
    if (errors) fclose(errors);
    return false;
  }
  bool is_read = read_json(file, rows, why);
  int status = pclose(file);
  if (status != 0) explain(status, errors, why);
  fclose(errors);
  if (status == 0 && is_read) return true;
  admin_rows_drop(rows);
  return false;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

typedef struct admin_trial {
  char told[3 * AL_MESSAGE_SIZE]; /* why each source has failed */
  al_code code;                   /* of the first one */
} admin_trial;

static void note(admin_trial *trial, const char *message) {
  size_t length = strlen(trial->told);
  snprintf(trial->told + length, sizeof trial->told - length, "%s%s", length ? "; " : "", message);
}

static bool try_nodes(admin_options *options, admin_rows *rows, admin_trial *trial) {
  char message[AL_MESSAGE_SIZE];
  for (size_t node = 0; node < options->broker.count; node++) {
    char *address = admin_source_address(options, node);
    options->api_user = strchr(address, '@') ? options->broker.nodes[node].user : NULL;
    al_code code = read_api(options, address, rows, message);
    free(address);
    if (code == AL_OK) return true;
    note(trial, message);
    if (trial->code == AL_OK) trial->code = code;
  }
  return false;
}

/* The lists of this machine's node are not those of another broker. */
static bool has_node_here(const cli_broker *broker) {
  for (size_t node = 0; node < broker->count; node++)
    if (is_here(broker->nodes[node].host)) return true;
  return false;
}

static bool try_ctl(const admin_options *options, admin_rows *rows, admin_trial *trial) {
  char why[AL_MESSAGE_SIZE], message[AL_MESSAGE_SIZE];
  if (!has_node_here(&options->broker)) {
    snprintf(message, sizeof message, "rabbitmqctl: not asked, as %.200s is another machine",
             options->broker.nodes[0].host);
  } else if (strpbrk(options->broker.nodes[0].vhost, "$`\\\"")) { /* Debian's has a shell read it again */
    snprintf(message, sizeof message,
             "rabbitmqctl: not asked, as its shell might run the name of the virtual host");
  } else if (read_ctl(options, rows, why)) {
    cli_progress("told by rabbitmqctl");
    return true;
  } else {
    snprintf(message, sizeof message, "rabbitmqctl: %.400s", why);
  }
  note(trial, message);
  return false;
}

static void find_source(admin_options *options, admin_rows *rows) {
  admin_trial trial = {.code = AL_OK};
  cli_broker_settle(&options->broker, "amqp-lock-admin");
  if (try_nodes(options, rows, &trial) || try_ctl(options, rows, &trial)) return;
  cli_error(
      "%s; next: %senable the plugin rabbitmq_management, name an API with --api, or run this as root on the "
      "broker's machine",
      trial.told, options->broker.is_default ? "set AMQP_URL, which is not set, " : "");
  exit(cli_exit_of(trial.code));
}

void admin_source_read(admin_options *options, admin_rows *rows) {
  char message[AL_MESSAGE_SIZE];
  if (*options->files) {
    for (char **file = options->files; *file; file++) read_file(*file, rows);
  } else if (!options->api) {
    find_source(options, rows);
  } else {
    al_code code = read_api(options, options->api, rows, message);
    if (code == AL_OK) return;
    cli_error("%s", message);
    exit(cli_exit_of(code));
  }
}
