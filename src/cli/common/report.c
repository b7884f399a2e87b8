/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/report.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/exits.h"

#define TEXT_SIZE 2048

static const char *program = "amqp-lock";
static cli_level told = CLI_LEVEL_WARNINGS;

/* musl otherwise decides by its first line whether stdout is a terminal, writes that line at once, and forgets a failure. */
void cli_report_begin(const char *name) {
  program = name;
  if (!isatty(STDOUT_FILENO)) setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
}
void cli_report_level(cli_level level) { told = level; }

void cli_text_clean(char *text) {
  for (unsigned char *c = (unsigned char *)text; *c; c++) {
    if (*c < ' ' || *c == 0x7f) *c = '?';
    if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f) c[0] = c[1] = '?';
  }
}

static void say(const char *format, va_list arguments) {
  char text[TEXT_SIZE], line[TEXT_SIZE + 64];
  struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
  vsnprintf(text, sizeof text, format, arguments);
  cli_text_clean(text);
  int length = snprintf(line, sizeof line, "%s: %s\n", program, text);
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) && write(STDERR_FILENO, line, (size_t)length) < 0)
    return;
}

#define SAY(level)                                                                                           \
  do {                                                                                                       \
    va_list arguments;                                                                                       \
    va_start(arguments, format);                                                                             \
    if ((level) <= told) say(format, arguments);                                                             \
    va_end(arguments);                                                                                       \
  } while (0)

void cli_error(const char *format, ...) { SAY(CLI_LEVEL_ERRORS); }
void cli_warn(const char *format, ...) { SAY(CLI_LEVEL_WARNINGS); }
void cli_progress(const char *format, ...) { SAY(CLI_LEVEL_PROGRESS); }

void cli_report_notes(al_session *session) {
  al_note note;
  while (al_session_news(session, &note)) {
    bool is_told = note.code == AL_LOST || note.code == AL_SUSPECT || note.code == AL_REMOVED;
    if (note.is_warning && !is_told && note.code != AL_UNREACHABLE)
      cli_warn("%s", note.text);
    else
      cli_progress("%s", note.text);
  }
}

void cli_usage_error(const char *format, ...) {
  SAY(CLI_LEVEL_ERRORS);
  cli_error("see \"%s --help\"", program);
  exit(CLI_EXIT_USAGE);
}

void cli_finish(int status) {
  errno = 0;
  bool is_written = fflush(stdout) == 0 && !ferror(stdout);
  if (!is_written) cli_error("cannot write the output%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
  exit(status == 0 && !is_written ? CLI_EXIT_SOFTWARE : status);
}

void cli_fail_no_memory(void) {
  cli_error("no_memory: this process has no memory left");
  exit(cli_exit_of(AL_NO_MEMORY));
}
