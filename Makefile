# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# `make help` lists the targets.

LUA ?= lua5.4
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
INCLUDEDIR ?= $(PREFIX)/include
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHCOMPLETIONDIR ?= $(PREFIX)/share/zsh/site-functions
FISHCOMPLETIONDIR ?= $(PREFIX)/share/fish/vendor_completions.d
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
INSTALL ?= install
CURL ?= $(if $(STATIC)$(LIBC:glibc=),0,1)

# Of the commands alone: the libraries for it come by `make deps FOR=musl`.
MUSL := $(filter musl,$(LIBC))

VARIANT := $(if $(SANITIZE),-sanitize$(patsubst thread,-thread,$(SANITIZE:1=)))$(if $(WERROR),-$(CC)-werror)
BUILD := build/$(LUA)$(VARIANT)
CORE := $(BUILD)/amqplocks/core.so
# The objects that do not depend on Lua: all Luas share them.
C_BUILD := build/objects$(VARIANT)
CLI_BUILD := $(C_BUILD)$(MUSL:%=-%)
C_SOURCES := $(sort $(wildcard src/core/*/*.c src/transport/*.c))
C_OBJECTS := $(C_SOURCES:src/%.c=$(C_BUILD)/%.o)
OBJECTS := $(C_OBJECTS) $(patsubst src/%.c,$(BUILD)/objects/%.o,$(sort $(wildcard src/lua/*.c)))
LUA_FILES := $(sort $(wildcard lua/amqplocks/*.lua lua/amqplocks/*/*.lua))
# The Lua that runs the specs. The sanitizer must be in the process before the module is loaded.
SANITIZED_LUA := $(BUILD)/bin/$(LUA)
RUN_LUA := $(if $(SANITIZE),$(CURDIR)/$(SANITIZED_LUA),$(LUA))
LUA_VERSION := $(if $(filter luajit,$(LUA)),5.1,$(LUA:lua%=%))
LUA_SUFFIX := $(subst .,_,$(LUA_VERSION))

# pkg-config is called when a recipe runs, not before: `prepare` may have installed the package a moment ago.
PACKAGES = librabbitmq libssl libcrypto
LUA_PACKAGE = $$(for p in $(LUA) lua-$(LUA_VERSION) lua$(subst .,,$(LUA_VERSION)); do \
	$(PKG_CONFIG) --exists $$p && echo $$p && break; done)

# nodelete: the report of leaks needs the symbols of the module, and an unloaded module has none.
# libubsan is linked statically and hidden: a shared one, beside the address sanitizer, does not write to the file for
# reports.
ifeq ($(SANITIZE),thread)
  SANITIZER := -fsanitize=thread
  SANITIZER_PRELOAD := libtsan.so
else ifneq ($(SANITIZE),)
  SANITIZER := -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wl,-z,nodelete
  SANITIZER_LIBS := -static-libubsan -Wl,--exclude-libs,libubsan.a
  SANITIZER_PRELOAD := libasan.so
endif
# -fno-lto: the archives join all objects into one object and hide symbols in it, which needs machine code.
# Without .git, as in a tarball, of which packages are made, the code does not assert.
ALL_CFLAGS := $(if $(wildcard .git),,-DNDEBUG) $(CFLAGS) -fno-lto -std=c11 -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -fvisibility=hidden -fPIC -pthread \
	-D_GNU_SOURCE -Isrc $(CPPFLAGS) $(SANITIZER) $(if $(SANITIZE),-fno-omit-frame-pointer)

# Groups of packages (arguments of spec/support/prepare), and the goals that need them. A goal that is in no list is a
# build, or an install: it needs `build`, and only names what is missing, as those of `lib` and `cli` do. The goals of
# the other groups install it.
NEED_lib := lib install-lib
NEED_musl := musl $(if $(MUSL),cli install-cli)
NEED_cli := $(filter-out $(NEED_musl),cli install-cli) check check-warnings
NEED_demo := demo picture
NEED_test := test test-unit test-sim soak soak-suite metrics-rock picture-dashboard mutate \
	prove prove-sim prove-memory prove-fenced prove-fast prove-many prove-breakages check-musl $(if $(SUITE),bench-rivals)
NEED_check-musl := check-musl
NEED_bench := bench $(if $(SUITE),,bench-rivals)
NEED_cluster := prove-cluster
NEED_bench-cluster := bench-cluster
NEED_porcupine := prove-porcupine
NEED_breakages := prove-breakages
NEED_fuzz := check check-fuzz fuzz fuzz-show fuzz-keep
NEED_check := check check-lua check-format check-man check-warnings check-fuzz format
NEED_deb := deb
NEED_docs := docs
NEED_db-demo := demo-db
NEED_db := test-db torture-db break-db figures-db
ifneq ($(CASSANDRA),0)
  NEED_db-cassandra := $(if $(filter %dblocks %dblocks/ %cassandra_spec.lua,$(or $(SPEC),spec/dblocks)),test-db)
endif
INSTALLED_GROUPS := demo test bench cluster bench-cluster porcupine breakages fuzz check check-musl deb docs db-demo db db-cassandra

BLANK := $() $()
INSTALLING := $(foreach group,$(INSTALLED_GROUPS),$(NEED_$(group)))
GOALS := $(or $(if $(filter deps,$(MAKECMDGOALS)),$(FOR)),$(filter-out deps,$(MAKECMDGOALS)),all)
NEEDS := $(if $(filter-out $(NEED_lib) $(NEED_cli) $(NEED_musl) $(NEED_docs),$(GOALS)),build,$(if $(filter-out $(NEED_musl) $(NEED_docs),$(GOALS)),lib)) \
	$(foreach group,cli musl $(INSTALLED_GROUPS),$(if $(filter $(NEED_$(group)),$(GOALS)),$(group)))
LOOKED := $(BUILD)/.looked-for-$(subst $(BLANK),-,$(filter lib build cli musl,$(NEEDS)))
READY := $(if $(filter deps $(INSTALLING),$(MAKECMDGOALS)),prepare,$(LOOKED))

# The order of these goals matters: run them one after the other, as given.
ifneq ($(filter clean deps uninstall,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

Q := $(if $(V),,@)
BUILDING = @echo "building $@" && mkdir -p $(@D)

export GC
export AMQPLOCKS_LIB = $(CURDIR)/$(LIB)
export AMQPLOCKS_CLI = $(CURDIR)/$(CLI)
export AMQPLOCKS_OBJECTS = $(CURDIR)/$(C_BUILD)
export AMQPLOCKS_SANITIZER = $(SANITIZER) $(SANITIZER_LIBS)
# For spec/support/suite; "": stories run under the Lua of the specs.
export STORIES_LUA = $(if $(SANITIZE)$(filter $(LUA),$(PROVE_LUA)),,$(PROVE_LUA))
export SANITIZE_REPORTS := $(if $(SANITIZE),$(CURDIR)/$(BUILD)/reports)
.DELETE_ON_ERROR:
TOOLS := $(sort $(wildcard tools/*.mk))
# A target that is a word is no file.
.PHONY: always $(shell sed -nE 's/^([a-z][a-z -]*):.*/\1/p' Makefile $(TOOLS))

all: build

help: ## this list
	@echo "make [TARGET] [LUA=lua5.4|lua5.5|lua5.3|lua5.1|luajit] [SANITIZE=1|thread] [GC=1] [V=1]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1	\2/p' Makefile $(TOOLS) | expand -t 20
	@sed -n 's/^#: \{0,1\}//p' Makefile

#:
#: Variables for building and installing, from the environment or the command line:
#:   CC CPPFLAGS CFLAGS LDFLAGS AR LD OBJCOPY PKG_CONFIG INSTALL
#:   CURL=0            amqp-lock-admin without libcurl: it asks rabbitmqctl alone, and "top" fails
#:   DESTDIR           prefix of every installed path (none)
#:   PREFIX            /usr/local
#:   BINDIR            amqp-lock, amqp-lock-admin ($PREFIX/bin)
#:   LIBDIR            C libraries, and pkgconfig/ ($PREFIX/lib)
#:   INCLUDEDIR        amqplocks.h ($PREFIX/include)
#:   MANDIR            manual pages ($PREFIX/share/man)
#:   COMPLETIONDIR     completions for bash ($PREFIX/share/bash-completion/completions)
#:   ZSHCOMPLETIONDIR  for zsh ($PREFIX/share/zsh/site-functions)
#:   FISHCOMPLETIONDIR for fish ($PREFIX/share/fish/vendor_completions.d)
#:   LUA_LDIR          Lua modules ($PREFIX/share/lua/5.4, of the version of LUA); named as in Lua's luaconf.h, as is
#:   LUA_CDIR          the C module ($LIBDIR/lua/5.4); $LUA_LDIR and $LUA_CDIR get amqplocks/ each
#: Building and installing need no network and install no packages. `deps` and the targets above that run or check
#: something (demo, picture, test, check, bench, prove, fuzz and so on) install packages, with apt-get, on Debian and
#: its derivatives.

# ---- building ----

PREPARE = LUA=$(LUA) CURL=$(CURL) spec/support/prepare

prepare:
	@$(PREPARE) $(NEEDS)

# The check for missing packages runs before the first build, and after a failed compile. It does not run each time: a
# finished build can be installed without a compiler.
$(LOOKED):
	@$(PREPARE) --look $(NEEDS)
	@mkdir -p $(@D) && touch $@

LOOK = { $(PREPARE) --look $(NEEDS); exit 1; }

DEPS_FOR := all build $(sort $(NEED_lib) $(NEED_cli) $(NEED_musl) $(INSTALLING))

deps: ## install the packages for building, or FOR=lib (the C library alone), test, demo, bench, check ...
	$(if $(filter-out $(DEPS_FOR),$(FOR)),$(error FOR=$(FOR): what are these packages for? One or more of: $(DEPS_FOR)))
	@$(PREPARE) $(NEEDS)
	$(if $(filter musl,$(FOR)),@tools/musl build/musl)
	@echo "everything that $(strip make $(FOR:musl=cli STATIC=1 LIBC=musl)) needs is installed"

build: $(CORE) $(if $(SANITIZE),$(SANITIZED_LUA)) ## the default: build the C module in build/; names missing packages

$(CORE): $(OBJECTS) src/lua/exports.map
	$(BUILDING)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,--version-script=src/lua/exports.map $(LDFLAGS) -o $@ $(OBJECTS) $(SANITIZER_LIBS) $$($(PKG_CONFIG) --libs $(PACKAGES))

# $(call COMPILE,package of Lua)
define COMPILE
	@echo "compiling $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $$($(PKG_CONFIG) --cflags $(1) $(PACKAGES)) -MMD -MP -c -o $@ $< || $(LOOK)
endef

$(C_BUILD)/%.o: src/%.c Makefile | $(READY)
	$(call COMPILE)

$(C_BUILD)-musl/%.o: src/%.c Makefile | $(READY)
	$(call COMPILE)

$(BUILD)/objects/%.o: src/%.c Makefile | $(READY)
	$(call COMPILE,$(LUA_PACKAGE))

-include $(wildcard $(C_BUILD)*/*/*.d $(C_BUILD)*/*/*/*.d $(BUILD)/objects/*/*.d)

$(SANITIZED_LUA): spec/support/preload.c Makefile | $(CORE)
	@echo "making $@, a $(LUA) with the sanitizers in it"
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -fPIC -o $@.so $<
	@printf '#!/usr/bin/env bash\nLD_PRELOAD="%s %s $$LD_PRELOAD" exec -a "$$0" %s "$$@"\n' \
	  "$$($(CC) -print-file-name=$(SANITIZER_PRELOAD))" "$(CURDIR)/$@.so" "$$(command -v $(LUA))" >$@ && chmod +x $@

CHECKOUT_PATH := $(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;$(CURDIR)/db-locks/?.lua;$(CURDIR)/db-locks/?/init.lua;

# Lua 5.3 and 5.4 read LUA_PATH_5_4 (for example) instead of LUA_PATH when it is set. Then this sets that variable.
PRINT_ENV = suffix=; [ -z "$${LUA_PATH_$(LUA_SUFFIX)+set}$${LUA_CPATH_$(LUA_SUFFIX)+set}" ] || suffix=_$(LUA_SUFFIX); \
	echo "export LUA_PATH$$suffix='$(CHECKOUT_PATH)'\"\$${LUA_PATH$$suffix:-;}\""; \
	echo "export LUA_CPATH$$suffix='$(CURDIR)/$(BUILD)/?.so;'\"\$${LUA_CPATH$$suffix:-;}\""

env: ## print the variables with which Lua finds this checkout's module: eval "$(make -s env)"
	@$(MAKE) --no-print-directory build >&2
	@$(PRINT_ENV)

# The rest of the command line finds this checkout's module; $$LUA is the Lua to run it with.
WITH_ENV = eval "$$($(PRINT_ENV))" && LUA=$(RUN_LUA)

LUA_LDIR ?= $(PREFIX)/share/lua/$(LUA_VERSION)
LUA_CDIR ?= $(LIBDIR)/lua/$(LUA_VERSION)

# src/place records in build/ which directories it created, so that uninstall removes only those.
PLACE = DESTDIR="$(DESTDIR)" INSTALL="$(INSTALL)" src/place

install: build ## install the module for $(LUA)
	@echo "installing to $(DESTDIR)$(LUA_LDIR) and $(DESTDIR)$(LUA_CDIR)"
	$(Q)for file in $(LUA_FILES:lua/%=%); do $(PLACE) file 644 "lua/$$file" "$(LUA_LDIR)/$$file" || exit; done
	$(Q)$(PLACE) file 755 $(CORE) "$(LUA_CDIR)/amqplocks/core.so"

uninstall: ## remove the files that install, install-lib, install-lib-lua and install-cli installed
	@echo "removing the installed files from $(DESTDIR)$(PREFIX)"
	$(Q)$(PLACE) away $(LUA_FILES:lua/%="$(LUA_LDIR)/%") "$(LUA_CDIR)/amqplocks/core.so" \
	  "$(INCLUDEDIR)/amqplocks.h" "$(LIBDIR)/libamqplocks.a" "$(LIBDIR)/$(SHARED)" "$(LIBDIR)/$(SONAME)" \
	  "$(LIBDIR)/libamqplocks.so" "$(LIBDIR)/pkgconfig/amqplocks.pc" "$(MANDIR)/man3/amqplocks.3" \
	  "$(LIBDIR)/libamqplocks-$(LUA).a" "$(LIBDIR)/pkgconfig/amqplocks-$(LUA).pc" \
	  "$(ZSHCOMPLETIONDIR)/_amqp-lock" $(foreach command,amqp-lock amqp-lock-admin,"$(BINDIR)/$(command)" \
	  "$(COMPLETIONDIR)/$(command)" "$(FISHCOMPLETIONDIR)/$(command).fish") $(patsubst docs/man/%,"$(MANDIR)/man1/%",$(wildcard docs/man/*.1))

# ---- the library ----
#
# libamqplocks for programs in C, and libamqplocks-$(LUA) for programs that host Lua. Both consist of the module's
# objects. They are built in build/lib; pkg-config finds them there with PKG_CONFIG_PATH=build/lib.

OBJCOPY ?= objcopy
LIB := build/lib$(VARIANT)
VERSION := $(shell sed -n 's/^.define AL_VERSION "\([^"]*\)".*/\1/p' src/amqplocks.h)
# While the major version is 0, a new minor version may break the ABI, so the soname has both.
SONAME := libamqplocks.so.$(basename $(VERSION))
SHARED := libamqplocks.so.$(VERSION)
EMBEDDED := $(BUILD)/objects/embed/embedded.o
PARTS := $(BUILD)/embed/parts.h

lib: $(LIB)/libamqplocks.a $(LIB)/libamqplocks.so $(LIB)/amqplocks.h $(LIB)/amqplocks.pc ## the C library, in build/lib

lib-lua: $(LIB)/libamqplocks-$(LUA).a $(LIB)/amqplocks-$(LUA).pc ## the module as an archive, for programs that host $(LUA)

# $(call ARCHIVE,option of objcopy): an archive of a single object. Only the symbols that the option leaves visible can
# collide with symbols of the program: those of amqplocks.h, or luaopen_amqplocks alone.
ARCHIVE = $(LD) -r -o $(BUILD)/$(@F:.a=.o) $(filter %.o,$^) && $(OBJCOPY) $(1) $(BUILD)/$(@F:.a=.o) && \
	rm -f $@ && $(AR) rcs $@ $(BUILD)/$(@F:.a=.o)

$(LIB)/libamqplocks.a: $(C_OBJECTS)
	$(BUILDING)
	$(Q)$(call ARCHIVE,--localize-hidden)

$(LIB)/libamqplocks-$(LUA).a: $(OBJECTS) $(EMBEDDED)
	$(BUILDING)
	$(Q)$(call ARCHIVE,--keep-global-symbol=luaopen_amqplocks)

# -Bsymbolic-functions: the library calls its own functions, also where the program has functions of the same names.
$(LIB)/$(SHARED): $(C_OBJECTS)
	$(BUILDING)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic-functions $(LDFLAGS) \
	  -o $@ $(C_OBJECTS) $(SANITIZER_LIBS) $$($(PKG_CONFIG) --libs $(PACKAGES))

$(LIB)/libamqplocks.so: $(LIB)/$(SHARED)
	@ln -sf $(SHARED) $(LIB)/$(SONAME) && ln -sf $(SONAME) $@

$(LIB)/amqplocks.h: src/amqplocks.h
	@mkdir -p $(@D) && cp $< $@

$(EMBEDDED): ALL_CFLAGS += -I$(BUILD)/embed
$(EMBEDDED): $(PARTS)

# This runs each time: no date of a file tells that a Lua file was deleted.
$(PARTS): always
	@mkdir -p $(@D)
	@src/embed/pack $(LUA_FILES) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# $(call PC,libdir,includedir): the directories, in build/lib or as installed. pkg-config needs blanks escaped by a
# backslash.
PC = sed -e '/^\#/d' -e 's|@libdir@|$(subst $(BLANK),\\ ,$(1))|' -e 's|@includedir@|$(subst $(BLANK),\\ ,$(2))|' -e 's|@version@|$(VERSION)|' -e 's|@lua@|$(LUA)|g' \
	-e 's| *@flags@|$(SANITIZER:%= %)|'

$(LIB)/amqplocks.pc: src/amqplocks.pc.in src/amqplocks.h Makefile
	@mkdir -p $(@D) && $(call PC,$(CURDIR)/$(LIB),$(CURDIR)/$(LIB)) $< >$@

$(LIB)/amqplocks-$(LUA).pc: src/embed/amqplocks-lua.pc.in src/amqplocks.h Makefile
	@mkdir -p $(@D) && $(call PC,$(CURDIR)/$(LIB),) $< >$@

install-lib: lib ## install the C library
	@echo "installing to $(DESTDIR)$(LIBDIR) and $(DESTDIR)$(INCLUDEDIR)"
	$(Q)$(PLACE) file 644 $(LIB)/amqplocks.h "$(INCLUDEDIR)/amqplocks.h"
	$(Q)$(PLACE) file 644 $(LIB)/libamqplocks.a "$(LIBDIR)/libamqplocks.a"
	$(Q)$(PLACE) file 755 $(LIB)/$(SHARED) "$(LIBDIR)/$(SHARED)"
	$(Q)$(PLACE) link $(SHARED) "$(LIBDIR)/$(SONAME)"
	$(Q)$(PLACE) link $(SONAME) "$(LIBDIR)/libamqplocks.so"
	$(Q)$(PLACE) file 644 docs/man/amqplocks.3 "$(MANDIR)/man3/amqplocks.3"
	$(Q)$(call PC,$(LIBDIR),$(INCLUDEDIR)) src/amqplocks.pc.in | $(PLACE) text 644 "$(LIBDIR)/pkgconfig/amqplocks.pc"
	@$(if $(DESTDIR),,echo "programs find $(SONAME) after ldconfig, or with LD_LIBRARY_PATH=$(LIBDIR)")

install-lib-lua: lib-lua ## install the archive for programs that host $(LUA)
	@echo "installing to $(DESTDIR)$(LIBDIR)"
	$(Q)$(PLACE) file 644 $(LIB)/libamqplocks-$(LUA).a "$(LIBDIR)/libamqplocks-$(LUA).a"
	$(Q)$(call PC,$(LIBDIR),) src/embed/amqplocks-lua.pc.in | \
	  $(PLACE) text 644 "$(LIBDIR)/pkgconfig/amqplocks-$(LUA).pc"

# ---- the command ----
#
# amqp-lock and amqp-lock-admin, with the objects of the C library in them. They need rabbitmq-c and OpenSSL, and no Lua;
# amqp-lock-admin needs jansson and libcurl as well. STATIC=1 links all of it statically. DYNAMIC=1 links libamqplocks.so,
# for packages that have the library in another one. CURL=0 builds without libcurl: the verbs that list ask rabbitmqctl
# alone, and "top" fails. So does STATIC=1: Debian has no static form of what its libcurl needs. STATIC=1 LIBC=musl links
# what tools/musl compiled; such a command needs no file of the system that it runs on.

HAS_CURL := $(filter-out 0,$(CURL))
CLI := build/cli$(VARIANT)$(MUSL:%=-%)$(if $(STATIC),-static)$(if $(DYNAMIC),-dynamic)$(if $(HAS_CURL),,-nocurl)
CLI_OBJECTS = $(patsubst src/%.c,$(CLI_BUILD)/%.o,$(wildcard src/cli/common/*.c src/cli/$(1)/*.c))
CLI_WITHOUT := $(CLI_BUILD)/cli/admin/$(if $(HAS_CURL),http_none,http).o
CLI_PACKAGES = $(CLI_OWN) $(if $(DYNAMIC),,$(PACKAGES))

cli: $(CLI)/amqp-lock $(CLI)/amqp-lock-admin ## the commands amqp-lock and amqp-lock-admin, in build/cli; STATIC=1, STATIC=1 LIBC=musl

$(CLI)/amqp-lock: $(call CLI_OBJECTS,lock)
$(CLI)/amqp-lock-admin: $(filter-out $(CLI_WITHOUT),$(call CLI_OBJECTS,admin))
$(CLI)/amqp-lock-admin: CLI_OWN = jansson $(if $(HAS_CURL),libcurl)
$(CLI)/amqp-lock $(CLI)/amqp-lock-admin: $(if $(DYNAMIC),$(LIB)/libamqplocks.so,$(C_SOURCES:src/%.c=$(CLI_BUILD)/%.o))
	$(BUILDING)
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(STATIC),-static) $(LDFLAGS) -o $@ $(filter %.o,$^) $(SANITIZER_LIBS) \
	  $(if $(DYNAMIC),-L$(LIB) -lamqplocks) \
	  $(if $(strip $(CLI_PACKAGES)),$$($(PKG_CONFIG) $(if $(STATIC),--static) --libs $(CLI_PACKAGES)))

ifneq ($(MUSL),)
$(CLI_BUILD)/%.o $(CLI)/%: CC = musl-gcc
$(CLI_BUILD)/%.o $(CLI)/%: export PKG_CONFIG_LIBDIR = build/musl/usr/lib/pkgconfig
endif

MAN_PAGES := $(wildcard docs/man/*.1)

install-cli: cli ## install the commands, their manual pages and their completion for bash, zsh and fish
	@echo "installing to $(DESTDIR)$(BINDIR) and $(DESTDIR)$(MANDIR)"
	$(Q)for page in $(MAN_PAGES); do $(PLACE) file 644 $$page "$(MANDIR)/man1/$${page##*/}" || exit; done
	$(Q)for command in amqp-lock amqp-lock-admin; do $(PLACE) file 755 $(CLI)/$$command "$(BINDIR)/$$command" && \
	  $(PLACE) file 644 src/cli/common/completion.bash "$(COMPLETIONDIR)/$$command" && \
	  $(PLACE) file 644 src/cli/common/completion.fish "$(FISHCOMPLETIONDIR)/$$command.fish" || exit; done
	$(Q)$(PLACE) file 644 src/cli/common/completion.zsh "$(ZSHCOMPLETIONDIR)/_amqp-lock"

# ---- running ----

demo: prepare build ## run examples/demo, with a RabbitMQ of its own
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua

# Builds with all processors, in a make of its own: specs that call make must not use the job server of this make.
BUILD_FOR_SPECS = +@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc 2>/dev/null || echo 2)) \
	build build-for-nginx replays cli

test: prepare ## all specs, or SPEC=path; SANITIZE=1 or thread, GC=1
	$(BUILD_FOR_SPECS) lib lib-lua
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/unit spec/sim spec/broker)

# nginx runs LuaJIT, with whichever Lua the specs run. The module comes first: two makes at a time must not compile the
# objects that both share.
build-for-nginx: $(CORE)
	@[ $(BUILD) = build/luajit ] || $(MAKE) --no-print-directory $(if $(V),,-s) LUA=luajit SANITIZE= WERROR= build

test-unit: ## the unit specs, which need no broker, or SPEC=path
test-sim: ## the specs against a model of the broker, or SPEC=path
test-unit test-sim: prepare
	$(BUILD_FOR_SPECS)
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/$(@:test-%=%))

check: check-rockspec check-includes check-lua check-format check-man check-warnings check-fuzz ## luacheck, clang-format, manual pages, -Werror with gcc and clang, a minute of fuzzing; -k: go on after a failure

clean: ## remove build/
	rm -rf build

# ---- the tools: further targets, for developers. A copy without tools/ builds and installs. ----

include $(TOOLS)
