/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program that hosts Lua: it runs a file, closes Lua, which unloads the modules, and then forks. It prints whether
 * the module was unloaded, and that the child exited with success. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_loaded(const char *name) {
  char line[4096];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && !found && fgets(line, sizeof line, maps)) found = strstr(line, name) != NULL;
  if (maps) fclose(maps);
  return found;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (argc != 2 || luaL_loadfile(L, argv[1]) != 0 || lua_pcall(L, 0, 0, 0) != 0) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 1;
  }
  if (!is_loaded("/core.so")) return 2;
  lua_close(L);
  printf(is_loaded("/core.so") ? "loaded, " : "unloaded, ");
  fflush(stdout);
  int status = 0;
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 3;
  puts("forked");
  return 0;
}
