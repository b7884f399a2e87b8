/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Draws a text on the terminal at standard output, over what was drawn before. It uses the sequences that all terminals
 * of today obey, and changes no setting of the terminal: a program that a signal ends leaves nothing to be restored. */
#ifndef CLI_ADMIN_SCREEN_H
#define CLI_ADMIN_SCREEN_H

#include <stdbool.h>

/* False if standard output is no terminal, or one that cannot move its cursor. */
bool admin_screen_is_there(void);

/* Draws two texts, one below the other: lines that end with a newline, in UTF-8. Lines of `notes` go on in the next
 * line of the terminal, lines of `table` are cut. If there are more lines than fit, the last one says how many. */
void admin_screen_draw(const char *notes, const char *table);

#endif
