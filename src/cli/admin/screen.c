/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define WRAP_OFF "\033[?7l" /* some characters are two columns wide */
#define WRAP_ON "\033[?7h"

bool admin_screen_is_there(void) {
  const char *kind = getenv("TERM");
  return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

static struct winsize size_of(void) {
  struct winsize size = {0};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  if (size.ws_row == 0) size.ws_row = 24;
  if (size.ws_col == 0) size.ws_col = 80;
  return size;
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* A part of a text that one line of the terminal shows. */
typedef struct admin_piece {
  const char *text;
  size_t length;
} admin_piece;

/* How many bytes the first `columns` characters of a line have. */
static size_t fitting(const char *line, size_t length, size_t columns) {
  size_t at = 0;
  for (size_t count = 0; at < length; at++) {
    bool is_first = (line[at] & 0xc0) != 0x80;
    if (is_first && count++ == columns) break;
  }
  return at;
}

/* Takes the next piece from the texts, as the terminal shows them. Returns false if there is none. */
static bool next_piece(const char **notes, const char **table, size_t columns, admin_piece *piece) {
  bool is_note = **notes != '\0';
  const char **text = is_note ? notes : table;
  size_t length = strcspn(*text, "\n");
  if (**text == '\0') return false;
  *piece = (admin_piece){*text, fitting(*text, length, columns)};
  bool goes_on = is_note && piece->length < length;
  *text += goes_on ? piece->length : length + ((*text)[length] == '\n');
  return true;
}

static size_t count_pieces(const char *notes, const char *table, size_t columns) {
  admin_piece piece;
  size_t count = 0;
  while (next_piece(&notes, &table, columns, &piece)) count++;
  return count;
}

/* ---- drawing ---------------------------------------------------------------------------------------------------- */

/* The cursor ends at the beginning of the line below, which stays free: what a shell prints next stands there. */
void admin_screen_draw(const char *notes, const char *table) {
  struct winsize size = size_of();
  admin_piece piece;
  size_t lines = count_pieces(notes, table, size.ws_col), room = size.ws_row > 1 ? size.ws_row - 1u : 1;
  size_t shown = lines <= room ? lines : room - 1;
  fputs(WRAP_OFF HOME, stdout);
  for (size_t i = 0; i < shown && next_piece(&notes, &table, size.ws_col, &piece); i++) {
    fwrite(piece.text, 1, piece.length, stdout);
    fputs(CLEAR_LINE "\n", stdout);
  }
  if (shown < lines) printf("(%zu more lines)" CLEAR_LINE "\n", lines - shown);
  fputs(CLEAR_BELOW WRAP_ON, stdout);
  fflush(stdout);
}
