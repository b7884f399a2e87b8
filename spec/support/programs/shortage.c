// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: the amqp-locks authors

// A Lua module, built by spec/support/process.lua: makes allocations fail in the C module and in rabbitmq-c, but
// nowhere else in the process. It redirects their calls of malloc and similar functions, in the tables by which each
// shared object finds functions of others. So it works with the module as shipped, and together with the sanitizers.

#define _GNU_SOURCE
#include "module.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_long asked;    // number of allocations since arm()
static atomic_long fails_at; // number of the allocation that fails; 0: none
static atomic_bool fails_on; // whether all later ones fail, too
static atomic_long failed;   // number of failed allocations

static bool fails(void) {
  long at = atomic_load(&fails_at), number = atomic_fetch_add(&asked, 1) + 1;
  if (at == 0 || number < at || (number > at && !atomic_load(&fails_on))) return false;
  atomic_fetch_add(&failed, 1);
  errno = ENOMEM;
  return true;
}

// ---- allocated blocks, for each of the two owners -------------------------------------------------------------------

#define BLOCKS_MOST 65536

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static void *blocks[2][BLOCKS_MOST];
static int block_count[2];

static void *keep(int who, void *block) {
  if (!block) return NULL;
  pthread_mutex_lock(&turn);
  if (block_count[who] == BLOCKS_MOST) abort();
  blocks[who][block_count[who]++] = block;
  pthread_mutex_unlock(&turn);
  return block;
}

// Blocks from before take() are not in the list.
static void forget(int who, const void *block) {
  pthread_mutex_lock(&turn);
  int i = block_count[who] - 1;
  while (i >= 0 && blocks[who][i] != block) i--;
  if (i >= 0) blocks[who][i] = blocks[who][--block_count[who]];
  pthread_mutex_unlock(&turn);
}

// Each owner has its own set of functions, which tells the caller.
#define FUNCTIONS(who)                                                                                       \
  static void *malloc_##who(size_t size) { return fails() ? NULL : keep(who, malloc(size)); }                \
  static void *calloc_##who(size_t count, size_t size) {                                                     \
    return fails() ? NULL : keep(who, calloc(count, size));                                                  \
  }                                                                                                          \
  static void *realloc_##who(void *block, size_t size) {                                                     \
    if (fails()) return NULL;                                                                                \
    forget(who, block);                                                                                      \
    return keep(who, realloc(block, size));                                                                  \
  }                                                                                                          \
  static char *strdup_##who(const char *text) { return fails() ? NULL : keep(who, strdup(text)); }           \
  static void free_##who(void *block) {                                                                      \
    forget(who, block);                                                                                      \
    free(block);                                                                                             \
  }
FUNCTIONS(0)
FUNCTIONS(1)

static const struct {
  const char *name;
  void *instead[2];
} functions[] = {{"malloc", {malloc_0, malloc_1}},
                 {"calloc", {calloc_0, calloc_1}},
                 {"realloc", {realloc_0, realloc_1}},
                 {"strdup", {strdup_0, strdup_1}},
                 {"free", {free_0, free_1}}};

// ---- the tables of a shared object ------------------------------------------------------------------------------------

static ElfW(Addr) entry(const struct dl_phdr_info *object, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag) {
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag != tag) continue;
    ElfW(Addr) value = dynamic->d_un.d_ptr;
    bool is_size = tag == DT_RELASZ || tag == DT_PLTRELSZ;
    return is_size || value >= object->dlpi_addr ? value : value + object->dlpi_addr;
  }
  return 0;
}

static void write_to(void **slot, void *value) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)slot & ~(page - 1);
  mprotect((void *)start, page, PROT_READ | PROT_WRITE); // it may be read-only by now
  *slot = value;
}

static int lead(const struct dl_phdr_info *object, const ElfW(Dyn) * dynamic, ElfW(Addr) table, size_t size,
                int who) {
  const char *names = (const char *)entry(object, dynamic, DT_STRTAB);
  const ElfW(Sym) *symbols = (const ElfW(Sym) *)entry(object, dynamic, DT_SYMTAB);
  const ElfW(Rela) *relocations = (const ElfW(Rela) *)table;
  int count = 0;
  for (size_t i = 0; table && i < size / sizeof *relocations; i++) {
    const char *name = names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
      if (strcmp(name, functions[f].name) != 0) continue;
      write_to((void **)(object->dlpi_addr + relocations[i].r_offset), functions[f].instead[who]);
      count++;
    }
  }
  return count;
}

struct search {
  const char *part; // of the object's file name
  int who, count;
};

static int visit(struct dl_phdr_info *object, size_t size, void *data) {
  struct search *search = data;
  (void)size;
  if (!object->dlpi_name || !strstr(object->dlpi_name, search->part)) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn) *dynamic = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    search->count += lead(object, dynamic, entry(object, dynamic, DT_JMPREL),
                          entry(object, dynamic, DT_PLTRELSZ), search->who);
    search->count += lead(object, dynamic, entry(object, dynamic, DT_RELA), entry(object, dynamic, DT_RELASZ),
                          search->who);
  }
  return 0;
}

// ---- for Lua ----------------------------------------------------------------------------------------------------------

// take(part, who) -> how many calls of a loaded object, whose file name contains this part, are redirected from now on
// and counted for `who`, 0 or 1
static int shortage_take(lua_State *L) {
  struct search search = {.part = luaL_checkstring(L, 1), .who = luaL_checkinteger(L, 2) == 1};
  dl_iterate_phdr(visit, &search);
  lua_pushinteger(L, search.count);
  return 1;
}

// arm(n [, on]): the n-th allocation from now on fails, and all later ones if `on`; 0: none does
static int shortage_arm(lua_State *L) {
  atomic_store(&fails_at, 0);
  atomic_store(&asked, 0);
  atomic_store(&failed, 0);
  atomic_store(&fails_on, lua_toboolean(L, 2));
  atomic_store(&fails_at, (long)luaL_checkinteger(L, 1));
  return 0;
}

// disarm() -> the number of allocations, and how many of them failed
static int shortage_disarm(lua_State *L) {
  atomic_store(&fails_at, 0);
  lua_pushinteger(L, (lua_Integer)atomic_load(&asked));
  lua_pushinteger(L, (lua_Integer)atomic_load(&failed));
  return 2;
}

// left(who) -> the number of blocks not freed
static int shortage_left(lua_State *L) {
  int who = luaL_checkinteger(L, 1) == 1;
  pthread_mutex_lock(&turn);
  lua_pushinteger(L, block_count[who]);
  pthread_mutex_unlock(&turn);
  return 1;
}

// forget(): blocks that are left now are not counted again; those of owner 1 are freed, so that no leak checker reports
// them.
static int shortage_forget(lua_State *L) {
  (void)L;
  pthread_mutex_lock(&turn);
  for (int i = 0; i < block_count[1]; i++) free(blocks[1][i]);
  block_count[0] = block_count[1] = 0;
  pthread_mutex_unlock(&turn);
  return 0;
}

int luaopen_shortage(lua_State *L) {
  Dl_info self;
  if (dladdr(&asked, &self))
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE); // others call us to the last
  static const luaL_Reg functions[] = {{"take", shortage_take},     {"arm", shortage_arm},
                                       {"disarm", shortage_disarm}, {"left", shortage_left},
                                       {"forget", shortage_forget}, {NULL, NULL}};
  return module(L, functions);
}
