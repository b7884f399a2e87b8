/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_SIZE 64
#define STAT_SIZE 512
#define PIECE 4096 /* of an environment */

/* As the kernel writes it; glibc does not declare it. */
typedef struct entry {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
} entry;

/* ---- pidfds ----------------------------------------------------------------------------------------------------- */

int cli_pidfd_open(pid_t pid) {
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int cli_pidfd_signal(int pidfd, int signal) {
#ifdef SYS_pidfd_send_signal
  return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
#else
  errno = ENOSYS;
  return -1;
#endif
}

/* ---- one -------------------------------------------------------------------------------------------------------- */

/* "/proc/PID/WHAT", without stdio. */
static void make_path(char path[PATH_SIZE], pid_t pid, const char *what) {
  char digits[16], *digit = digits + sizeof digits;
  *--digit = '\0';
  do *--digit = (char)('0' + pid % 10);
  while ((pid /= 10) > 0);
  strcpy(path, "/proc/");
  strcat(path, digit);
  strcat(path, "/");
  strcat(path, what);
}

static int open_of(pid_t pid, const char *what) {
  char path[PATH_SIZE];
  make_path(path, pid, what);
  return open(path, O_RDONLY | O_CLOEXEC);
}

static unsigned long long read_number(const char **at) {
  unsigned long long number = 0;
  *at += strspn(*at, " ");
  for (; **at >= '0' && **at <= '9'; ++*at) number = number * 10 + (unsigned long long)(**at - '0');
  return number;
}

static void skip_fields(const char **at, int count) {
  for (int i = 0; i < count; i++) {
    *at += strspn(*at, " ");
    *at += strcspn(*at, " ");
  }
}

/* "PID (NAME) STATE PARENT GROUP SESSION …"; the start time is field 22. The name may hold anything, also ")". */
static bool parse(const char *text, cli_process *process) {
  const char *at = strrchr(text, ')');
  if (!at || at[1] != ' ' || !at[2]) return false;
  process->state = at[2];
  at += 3;
  process->parent = (pid_t)read_number(&at);
  process->group = (pid_t)read_number(&at);
  process->session = (pid_t)read_number(&at);
  skip_fields(&at, 15);
  process->started = read_number(&at);
  return true;
}

bool cli_process_read(pid_t pid, cli_process *process) {
  char text[STAT_SIZE];
  int fd = open_of(pid, "stat");
  if (fd < 0) return false;
  ssize_t length = read(fd, text, sizeof text - 1);
  int reason = length == 0 ? ESRCH : errno;
  close(fd);
  errno = reason;
  if (length <= 0) return false;
  text[length] = '\0';
  process->pid = pid;
  return parse(text, process);
}

bool cli_process_is_named(pid_t pid, const char *name) {
  char text[32];
  int fd = open_of(pid, "comm");
  if (fd < 0) return false;
  ssize_t length = read(fd, text, sizeof text);
  close(fd);
  return length > 0 && (size_t)length == strlen(name) + 1 && memcmp(text, name, (size_t)length - 1) == 0;
}

#define OTHER_VARIABLE SIZE_MAX
#define OTHER_WORD (SIZE_MAX - 1)

/* The environment is read in pieces. `at`: how many bytes of the assignment match so far; OTHER_VARIABLE: this variable
 * is another one; OTHER_WORD: this word of the variable's value is another one. */
static bool match(const char *piece, size_t length, const char *assignment, size_t *at) {
  size_t value = strcspn(assignment, "=") + 1;
  for (size_t i = 0; i < length; i++) {
    bool is_in_value = *at != OTHER_VARIABLE && *at >= value;
    if (piece[i] == '\0' || (piece[i] == ' ' && is_in_value)) {
      if (*at < OTHER_WORD && assignment[*at] == '\0') return true;
      *at = piece[i] == '\0' ? 0 : value;
    } else if (*at < OTHER_WORD) {
      *at = assignment[*at] == piece[i] ? *at + 1 : is_in_value ? OTHER_WORD : OTHER_VARIABLE;
    }
  }
  return false;
}

bool cli_process_has(pid_t pid, const char *assignment, const char *other) {
  char piece[PIECE];
  ssize_t length;
  size_t at = 0, other_at = 0;
  bool found = false;
  int fd = open_of(pid, "environ");
  if (fd < 0) return false;
  while (!found && (length = read(fd, piece, sizeof piece)) > 0)
    found = match(piece, (size_t)length, assignment, &at) || match(piece, (size_t)length, other, &other_at);
  close(fd);
  return found;
}

/* A pidfd keeps the number from being used again, so the start time is looked at once it is open. A process that cannot be
 * looked at was there a moment ago. Either call may be denied, as by the profile of a container. */
void cli_process_signal(const cli_process *process, int signal) {
  cli_process now;
  int pidfd = cli_pidfd_open(process->pid);
  bool is_read = cli_process_read(process->pid, &now);
  bool is_same = is_read ? now.started == process->started : errno != ENOENT && errno != ESRCH;
  if (is_same && (pidfd < 0 || (cli_pidfd_signal(pidfd, signal) < 0 && errno != ESRCH)))
    kill(process->pid, signal);
  if (pidfd >= 0) close(pidfd);
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

bool cli_processes_are_shown(void) {
  char text[16];
  ssize_t length = readlink("/proc/self", text, sizeof text - 1);
  if (length <= 0) return false;
  text[length] = '\0';
  const char *at = text;
  return (pid_t)read_number(&at) == getpid();
}

static bool is_shortage(int reason) { return reason == EMFILE || reason == ENFILE || reason == ENOMEM; }

/* Returns false if a process is there, and could not be added. */
static bool add(cli_processes *processes, const char *name) {
  const char *at = name;
  pid_t pid = (pid_t)read_number(&at);
  if (*at != '\0' || pid <= 0) return true;
  if (processes->count == CLI_PROCESSES_MOST) return false;
  if (!cli_process_read(pid, &processes->all[processes->count])) {
    processes->is_cut_short |= is_shortage(errno);
    return errno == ENOENT || errno == ESRCH;
  }
  processes->count++;
  return true;
}

/* The kernel lists them by ascending pid. */
bool cli_processes_read(cli_processes *processes) {
  _Alignas(entry) char list[8192];
  long length;
  bool is_complete = true;
  processes->count = 0;
  int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  processes->is_cut_short = fd < 0 && is_shortage(errno);
  if (fd < 0) return false;
  while ((length = syscall(SYS_getdents64, fd, list, sizeof list)) > 0) {
    const entry *one;
    for (long at = 0; at < length; at += one->length) {
      one = (const entry *)(const void *)(list + at);
      if (!add(processes, one->name)) is_complete = false;
    }
  }
  close(fd);
  return is_complete && length == 0;
}

const cli_process *cli_processes_find(const cli_processes *processes, pid_t pid) {
  size_t low = 0, high = processes->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (processes->all[middle].pid == pid) return &processes->all[middle];
    if (processes->all[middle].pid < pid)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}
