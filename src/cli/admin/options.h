/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The command line of amqp-lock-admin, as a program reads it, and its verbs. */
#ifndef CLI_ADMIN_OPTIONS_H
#define CLI_ADMIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "amqplocks.h"
#include "cli/common/broker.h"

typedef enum admin_verb_id {
  ADMIN_CREATE,
  ADMIN_ADD,
  ADMIN_REMOVE,
  ADMIN_RESIZE,
  ADMIN_DESTROY,
  ADMIN_REPAIR,
  ADMIN_SLOTS,
  ADMIN_STATUS,
  ADMIN_REVOKE,
  ADMIN_FORGET_FENCE,
  ADMIN_WATCH,
  ADMIN_WHO,
  ADMIN_LS,
  ADMIN_HOLDERS,
  ADMIN_TOP
} admin_verb_id;

typedef struct admin_verb {
  admin_verb_id id;
  const char *name;
  const char *operands; /* such as "NAME N" */
  int least, most;      /* how many; `most` 0: any number */
  int from;             /* the smallest N */
  const char *line;     /* for --help */
  const char *text;     /* for VERB --help, below the line */
} admin_verb;

/* The kind of lock that NAME is. */
typedef enum admin_lock {
  ADMIN_SEMAPHORE,
  ADMIN_PERMITS,
  ADMIN_MUTEX,
  ADMIN_READERS,
  ADMIN_WRITER,
  ADMIN_FAST_MUTEX
} admin_lock;

typedef struct admin_options {
  const admin_verb *verb;
  admin_lock lock;
  const char *name;
  int number;   /* N; -1: there is none */
  char **files; /* of ls and holders; ends with NULL */
  bool quorum, revoke, fence;
  bool json; /* --json: --json-output, but for the verbs that read files */
  bool json_output;
  int64_t wait, timeout; /* nanoseconds; timeout -1: the library's default */
  const char *only;
  char *
      api; /* of --api, with the user and password that it may have until admin_source_hide_password(); or as found */
  const char *api_user; /* NULL: ~/.netrc tells it */
  bool once, has_help, has_version;
  int64_t interval; /* nanoseconds */
  cli_broker broker;
} admin_options;

/* Reads the command line. Ends the program for --help and --version, and with status 64 if something is wrong. */
void admin_options_read(admin_options *options, int argc, char **argv);

#endif
