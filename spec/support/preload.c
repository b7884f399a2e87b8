// SPDX-FileCopyrightText: the amqp-locks authors
// SPDX-License-Identifier: MIT

// The sanitizers must be preloaded into Lua, but not into programs that Lua starts: shells, Erlang, Python.

#include <stdlib.h>

__attribute__((constructor)) static void forget_preload(void) { unsetenv("LD_PRELOAD"); }

// Nothing is unloaded when Lua ends: otherwise memory that other libraries (cqueues, for example) keep until the end of
// the process counts as leaked.
int dlclose(void *handle) {
  (void)handle;
  return 0;
}
