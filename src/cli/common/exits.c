/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/exits.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

int cli_exit_of(al_code code) {
  switch (code) {
    case AL_OK:
      return 0;
    case AL_NOT_FOUND:
      return CLI_EXIT_NOT_FOUND;
    case AL_UNREACHABLE:
    case AL_UNAVAILABLE:
    case AL_BLOCKED:
    case AL_LIMIT:
      return CLI_EXIT_UNAVAILABLE;
    case AL_TIMEOUT:
    case AL_BUSY:
    case AL_CONTENDED:
      return CLI_EXIT_CONFLICT;
    case AL_LOST:
    case AL_SUSPECT:
    case AL_REMOVED:
      return CLI_EXIT_LOST;
    case AL_AUTH:
    case AL_VHOST:
    case AL_REFUSED:
      return CLI_EXIT_DENIED;
    case AL_TLS:
    case AL_SQUATTED:
    case AL_CONFLICT:
    case AL_EXISTS:
    case AL_URL:
      return CLI_EXIT_CONFIG;
    default:
      return CLI_EXIT_SOFTWARE;
  }
}

/* A core of this process would tell nothing about the command. */
void cli_exit_by_signal(int signal) {
  sigset_t only;
  prctl(PR_SET_DUMPABLE, 0);
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
  sigprocmask(SIG_UNBLOCK, &only, NULL);
  raise(signal);
  _exit(CLI_EXIT_SIGNAL + signal);
}
