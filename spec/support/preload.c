// SPDX-FileCopyrightText: the amqp-locks authors
// SPDX-License-Identifier: MIT

// The sanitizers have to be preloaded into Lua, but not into what Lua starts: shells, Erlang, Python.

#include <stdlib.h>

__attribute__((constructor)) static void forget_preload(void) { unsetenv("LD_PRELOAD"); }
