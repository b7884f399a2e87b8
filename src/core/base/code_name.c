/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The version, and the table of result codes and their names. It is the only one. */
#include "amqplocks.h"

static const char *const names[] = {
    [AL_OK] = "ok",
    [AL_TIMEOUT] = "timeout",
    [AL_BUSY] = "busy",
    [AL_CONTENDED] = "contended",
    [AL_DEADLOCK] = "deadlock",
    [AL_NOT_FOUND] = "not_found",
    [AL_EXISTS] = "exists",
    [AL_LOST] = "lost",
    [AL_SUSPECT] = "suspect",
    [AL_REMOVED] = "removed",
    [AL_NOT_HELD] = "not_held",
    [AL_CLOSED] = "closed",
    [AL_REFUSED] = "refused",
    [AL_AUTH] = "auth",
    [AL_VHOST] = "vhost",
    [AL_UNREACHABLE] = "unreachable",
    [AL_UNAVAILABLE] = "unavailable",
    [AL_TLS] = "tls",
    [AL_BLOCKED] = "blocked",
    [AL_CONFLICT] = "conflict",
    [AL_SQUATTED] = "squatted",
    [AL_LIMIT] = "limit",
    [AL_PHASE] = "phase",
    [AL_FORKED] = "forked",
    [AL_PROTOCOL] = "protocol",
    [AL_NO_MEMORY] = "no_memory",
    [AL_URL] = "url",
};

const char *al_version(void) { return AL_VERSION; }

const char *al_code_name(al_code code) {
  size_t index = (size_t)code;
  return index < sizeof names / sizeof *names ? names[index] : "protocol";
}
