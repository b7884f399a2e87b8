/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/status.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define END_ROOM 8 /* for what ends the line */

static int dropped, told_dropped; /* lines so far, and those that a later line has told of */
static bool is_cut;               /* the end of a line is missing */

static void put(cli_status *line, const char *text) {
  size_t length = strlen(text);
  if (line->length + length + END_ROOM > sizeof line->text) return;
  memcpy(line->text + line->length, text, length);
  line->length += length;
}

/* Bytes that are no UTF-8 are the writer's fault, and are passed as they are. */
static void put_quoted(cli_status *line, const char *text) {
  put(line, "\"");
  for (const char *c = text; *c; c++) {
    char escaped[8] = {*c, '\0'};
    if (*c == '"' || *c == '\\') snprintf(escaped, sizeof escaped, "\\%c", *c);
    if ((unsigned char)*c < ' ' || *c == 0x7f)
      snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned char)*c);
    put(line, escaped);
  }
  put(line, "\"");
}

cli_status cli_status_begin(const char *event) {
  cli_status line = {.length = 0};
  put(&line, "{\"event\":");
  put_quoted(&line, event);
  return line;
}

static void put_key(cli_status *line, const char *key) {
  put(line, ",");
  put_quoted(line, key);
  put(line, ":");
}

void cli_status_text(cli_status *line, const char *key, const char *value) {
  put_key(line, key);
  put_quoted(line, value);
}

static void put_number(cli_status *line, const char *key, double value, int decimals) {
  char text[64];
  snprintf(text, sizeof text, "%.*f", decimals, value);
  put_key(line, key);
  put(line, text);
}

void cli_status_number(cli_status *line, const char *key, double value) { put_number(line, key, value, 0); }
void cli_status_seconds(cli_status *line, const char *key, double value) { put_number(line, key, value, 3); }

/* Every line tells when it was written. */
static void put_time(cli_status *line) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  cli_status_seconds(line, "at", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
}

void cli_status_end(cli_status *line, int fd) {
  if (fd < 0) return;
  if (dropped > told_dropped) cli_status_number(line, "dropped", dropped - told_dropped);
  put_time(line);
  memcpy(line->text + line->length, "}\n", 3);
  if (cli_status_write(fd, line->text, line->length + 2))
    told_dropped = dropped;
  else
    dropped++;
}

/* A file that is full may take a part. */
static bool write_out(int fd, const char *text, size_t length) {
  struct pollfd out = {.fd = fd, .events = POLLOUT};
  if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT)) return false;
  ssize_t written = write(fd, text, length);
  if (written > 0) is_cut = (size_t)written < length;
  return written == (ssize_t)length;
}

bool cli_status_write(int fd, const char *text, size_t length) {
  return (!is_cut || write_out(fd, "\n", 1)) && write_out(fd, text, length);
}

int cli_status_dropped(void) { return dropped; }
