// SPDX-FileCopyrightText: the amqp-locks authors
// SPDX-License-Identifier: MIT

// The sanitizers have to be preloaded into Lua, but not into what Lua starts: shells, Erlang, Python.

#include <stdlib.h>

__attribute__((constructor)) static void forget_preload(void) { unsetenv("LD_PRELOAD"); }

// Nothing is unloaded when Lua ends: what a library of others (cqueues, for one) keeps until the process ends would count
// as leaked.
int dlclose(void *handle) {
  (void)handle;
  return 0;
}
