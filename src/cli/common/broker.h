/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Which broker, and how the session is called there: options that the programs share. */
#ifndef CLI_COMMON_BROKER_H
#define CLI_COMMON_BROKER_H

#include <stdbool.h>

#include "amqplocks.h"
#include "cli/common/arguments.h"

typedef struct cli_broker {
  char *url;            /* of --url; a copy */
  const char *url_file; /* of --url-file; NULL when settled: it is no file that can be read again */
  const char *name;     /* of --name */
  int heartbeat;        /* of --heartbeat, or the first URL's */
  bool is_default;      /* no URL was given: it is the library's */
  al_settings *nodes;
  size_t count;
} cli_broker;

cli_take cli_take_url;

/* Rows of a program's table of options: `type` is that of its options, which have a field `broker`. */
#define CLI_BROKER_OPTIONS(type, of_verbs)                                                                   \
  {.name = "url",                                                                                            \
   .word = "URL",                                                                                            \
   .help = "amqp:// or amqps:// ($AMQP_URL, or guest at localhost)",                                         \
   .take = cli_take_url,                                                                                     \
   .at = offsetof(type, broker.url),                                                                         \
   .group = "The broker",                                                                                    \
   .verbs = of_verbs},                                                                                       \
      {.name = "url-file",                                                                                   \
       .word = "FILE",                                                                                       \
       .help = "the URL is the first line of FILE",                                                          \
       .take = cli_take_text,                                                                                \
       .at = offsetof(type, broker.url_file),                                                                \
       .verbs = of_verbs},                                                                                   \
      {.name = "name",                                                                                       \
       .word = "TEXT",                                                                                       \
       .help = "how the broker's tools show this client (program[pid]@host)",                                \
       .take = cli_take_text,                                                                                \
       .at = offsetof(type, broker.name),                                                                    \
       .verbs = of_verbs},                                                                                   \
  {                                                                                                          \
    .name = "heartbeat", .word = "S", .help = "whole seconds (10, or what the URL says)",                    \
    .take = cli_take_number, .at = offsetof(type, broker.heartbeat), .least = 1, .most = 65535,              \
    .verbs = of_verbs                                                                                        \
  }

/* Reads the URL of --url, --url-file, $AMQP_URL or the library's default. Ends the program with status 64 if it is
 * malformed or the file cannot be read. `what` stands in the name of the connection. */
void cli_broker_settle(cli_broker *broker, const char *what);

/* Says that no URL was given, if that may be why the call failed with this code. */
void cli_broker_hint(const cli_broker *broker, al_code code);

/* Returns the heartbeat, in nanoseconds. */
int64_t cli_broker_heartbeat(const cli_broker *broker);

/* Before a wait: if it opens a connection, reads --url-file anew for it. A file that is missing or malformed is warned
 * of, and the URL from before is used. */
void cli_broker_renew(const cli_broker *broker, al_session *session);

/* As al_native_wait() and al_op_wait(), with --url-file read anew before each connection. */
void cli_broker_wait(const cli_broker *broker, al_session *session, al_op *op);
al_code cli_broker_await(const cli_broker *broker, al_session *session, al_op *op,
                         char message[AL_MESSAGE_SIZE]);

/* Makes a session. Sends nothing to the broker. */
al_session *cli_broker_session(const cli_broker *broker);

/* Forgets the password, and all else: no session can be made any more. */
void cli_broker_forget(cli_broker *broker);

#endif
