/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/common/report.h"

#define TEXT_SIZE 1024

/* Returns false if it is no path. "@" begins a name in the abstract namespace. */
static bool make_address(struct sockaddr_un *address, socklen_t *size, const char *path) {
  size_t length = strlen(path);
  if ((path[0] != '/' && path[0] != '@') || length >= sizeof address->sun_path) return false;
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(address->sun_path, path, length);
  if (path[0] == '@') address->sun_path[0] = '\0';
  *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] == '/'));
  return true;
}

static int connect_to(const char *path) {
  struct sockaddr_un address;
  socklen_t size;
  errno = EINVAL;
  if (!make_address(&address, &size, path)) return -1;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, size) == 0) return fd;
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

int cli_notify_open(void) {
  const char *path = getenv("NOTIFY_SOCKET");
  if (!path) {
    cli_warn("--notify: there is no $NOTIFY_SOCKET; systemd sets it for Type=notify");
    return -1;
  }
  int fd = connect_to(path);
  if (fd < 0) cli_warn("--notify: %s: %s", path, strerror(errno));
  unsetenv("NOTIFY_SOCKET");
  return fd;
}

void cli_notify_send(int fd, const char *assignments) {
  if (fd >= 0 && send(fd, assignments, strlen(assignments), MSG_NOSIGNAL) < 0) return; /* it is only told */
}

void cli_notify_status(int fd, const char *format, ...) {
  char text[TEXT_SIZE], line[TEXT_SIZE + 16];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  cli_text_clean(text); /* a new line would begin another assignment */
  snprintf(line, sizeof line, "STATUS=%s", text);
  cli_notify_send(fd, line);
}
