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
CFLAGS ?= -O2 -g
CPPFLAGS ?=
LDFLAGS ?=
PKG_CONFIG ?= pkg-config
INSTALL ?= install
SANITIZE ?=
WERROR ?=
V ?=
STATIC ?=
DYNAMIC ?=
CURL ?= $(if $(STATIC),0,1)

BUILD := build/$(LUA)$(if $(SANITIZE),-sanitize$(patsubst thread,-thread,$(SANITIZE:1=)))$(if $(WERROR),-$(CC)-werror)
CORE := $(BUILD)/amqplocks/core.so
SOURCES := $(sort $(wildcard src/core/*/*.c src/transport/*.c src/lua/*.c))
OBJECTS := $(SOURCES:src/%.c=$(BUILD)/objects/%.o)
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
ALL_CFLAGS := $(CFLAGS) -fno-lto -std=c11 -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -fvisibility=hidden -fPIC -pthread \
	-D_GNU_SOURCE -Isrc $(CPPFLAGS) $(SANITIZER) $(if $(SANITIZE),-fno-omit-frame-pointer)

# The goals of this run, and the groups of packages that they need. The groups are arguments of spec/support/prepare.
GOALS := $(or $(if $(filter deps,$(MAKECMDGOALS)),$(FOR)),$(filter-out deps,$(MAKECMDGOALS)),all)
NEEDS := $(if $(filter-out lib install-lib cli install-cli,$(GOALS)),build,lib) $(if $(filter cli install-cli check check-warnings,$(GOALS)),cli) $(if $(filter demo picture bench,$(GOALS)),demo) $(if $(filter bench,$(GOALS)),test bench) $(if $(filter picture-dashboard test test-% metrics-rock soak soak-% mutate prove prove-%,$(GOALS)),demo test) \
	$(if $(filter check check-% format,$(GOALS)),check) $(if $(filter prove-cluster,$(GOALS)),cluster) $(if $(filter check check-fuzz fuzz fuzz-%,$(GOALS)),fuzz) \
	$(if $(filter prove-breakages,$(GOALS)),breakages) $(if $(filter deb,$(GOALS)),deb) $(if $(filter demo-db,$(GOALS)),db-demo) $(if $(filter test-db torture-db break-db figures-db,$(GOALS)),db) \
	$(if $(filter test-db,$(GOALS)),$(if $(or $(filter 0,$(CASSANDRA)),$(and $(SPEC),$(filter-out %dblocks %dblocks/ %cassandra_spec.lua,$(SPEC)))),,db-cassandra))

# These targets install missing packages. All other targets (a build, an install) only name what is missing.
INSTALLING := deps demo demo-db torture-db break-db figures-db picture picture-dashboard test test-% metrics-rock soak soak-% mutate bench prove prove-% check check-% format fuzz fuzz-% deb
LOOKED := $(BUILD)/.looked-for-$(firstword $(NEEDS))$(if $(filter cli,$(NEEDS)),-cli)
READY := $(if $(filter $(INSTALLING),$(MAKECMDGOALS)),prepare,$(LOOKED))

# The order of these goals matters: run them one after the other, as given.
ifneq ($(filter clean deps uninstall,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

Q := $(if $(V),,@)

export GC
export AMQPLOCKS_LIB = $(CURDIR)/$(LIB)
export AMQPLOCKS_CLI = $(CURDIR)/$(CLI)
export AMQPLOCKS_OBJECTS = $(CURDIR)/$(BUILD)/objects
export AMQPLOCKS_SANITIZER = $(SANITIZER) $(SANITIZER_LIBS)
export SANITIZE_REPORTS := $(if $(SANITIZE),$(CURDIR)/$(BUILD)/reports)
.DELETE_ON_ERROR:
.PHONY: demo-db test-db torture-db break-db figures-db deps uninstall matrix-brokers prove-memory check-fuzz fuzz fuzz-show fuzz-keep replays
.PHONY: all build build-for-nginx prepare help env demo picture picture-rivals picture-dashboard test test-unit test-sim matrix soak soak-suite prove prove-sim prove-breakages prove-cluster prove-fenced prove-fast prove-many mutate bench install clean \
	lib lib-lua install-lib install-lib-lua cli install-cli always check check-includes check-lua check-format check-man check-warnings check-rockspec format rockspec

all: build

help: ## this list
	@echo "make [TARGET] [LUA=lua5.4|lua5.5|lua5.3|lua5.1|luajit] [SANITIZE=1|thread] [GC=1] [V=1]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1	\2/p' Makefile | expand -t 20
	@sed -n 's/^#: \{0,1\}//p' Makefile

#:
#: Variables for building and installing, from the environment or the command line:
#:   CC CPPFLAGS CFLAGS LDFLAGS AR LD OBJCOPY PKG_CONFIG INSTALL
#:   CURL=0            amqp-lock-admin without libcurl, and without its verb "top"
#:   DESTDIR           prefix of every installed path (none)
#:   PREFIX            /usr/local
#:   BINDIR            amqp-lock, amqp-lock-admin ($PREFIX/bin)
#:   LIBDIR            C libraries, and pkgconfig/ ($PREFIX/lib)
#:   INCLUDEDIR        amqplocks.h ($PREFIX/include)
#:   MANDIR            manual pages ($PREFIX/share/man)
#:   COMPLETIONDIR     completions for bash ($PREFIX/share/bash-completion/completions)
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

DEPS_FOR := all lib install-lib cli install-cli demo test test-unit test-sim soak bench check format fuzz prove prove-sim prove-memory \
	prove-cluster prove-fenced prove-fast prove-breakages deb demo-db test-db torture-db break-db figures-db

deps: ## install the packages for building, or FOR=lib (the C library alone), test, demo, bench, check ...
	$(if $(filter-out $(DEPS_FOR),$(FOR)),$(error FOR=$(FOR): what are these packages for? One or more of: $(DEPS_FOR)))
	@$(PREPARE) $(NEEDS)
	@echo "everything that $(strip make $(FOR)) needs is installed"

build: $(CORE) $(if $(SANITIZE),$(SANITIZED_LUA)) ## the default: build the C module in build/; names missing packages

$(CORE): $(OBJECTS) src/lua/exports.map
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,--version-script=src/lua/exports.map $(LDFLAGS) -o $@ $(OBJECTS) $(SANITIZER_LIBS) $$($(PKG_CONFIG) --libs $(PACKAGES))

$(BUILD)/objects/%.o: src/%.c Makefile | $(READY)
	@echo "compiling $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $$($(PKG_CONFIG) --cflags $(LUA_PACKAGE) $(PACKAGES)) -MMD -MP -c -o $@ $< || $(LOOK)

-include $(OBJECTS:.o=.d)

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
	  "$(COMPLETIONDIR)/amqp-lock" "$(COMPLETIONDIR)/amqp-lock-admin" \
	  "$(BINDIR)/amqp-lock" "$(BINDIR)/amqp-lock-admin" $(patsubst docs/man/%,"$(MANDIR)/man1/%",$(wildcard docs/man/*.1))

# ---- the library ----
#
# libamqplocks for programs in C, and libamqplocks-$(LUA) for programs that host Lua. Both consist of the module's
# objects. They are built in build/lib; pkg-config finds them there with PKG_CONFIG_PATH=build/lib.

OBJCOPY ?= objcopy
LIB := build/lib$(patsubst build/$(LUA)%,%,$(BUILD))
VERSION := $(shell sed -n 's/^.define AL_VERSION "\([^"]*\)".*/\1/p' src/amqplocks.h)
# While the major version is 0, a new minor version may break the ABI, so the soname has both.
SONAME := libamqplocks.so.$(basename $(VERSION))
SHARED := libamqplocks.so.$(VERSION)
C_OBJECTS := $(filter-out $(BUILD)/objects/lua/%,$(OBJECTS))
EMBEDDED := $(BUILD)/objects/embed/embedded.o
PARTS := $(BUILD)/embed/parts.h

lib: $(LIB)/libamqplocks.a $(LIB)/libamqplocks.so $(LIB)/amqplocks.h $(LIB)/amqplocks.pc ## the C library, in build/lib

lib-lua: $(LIB)/libamqplocks-$(LUA).a $(LIB)/amqplocks-$(LUA).pc ## the module as an archive, for programs that host $(LUA)

# A single object: only the symbols of amqplocks.h can collide with symbols of the program.
$(LIB)/libamqplocks.a: $(C_OBJECTS)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(LD) -r -o $(BUILD)/libamqplocks.o $(C_OBJECTS)
	$(Q)$(OBJCOPY) --localize-hidden $(BUILD)/libamqplocks.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/libamqplocks.o

# -Bsymbolic-functions: the library calls its own functions, also where the program has functions of the same names.
$(LIB)/$(SHARED): $(C_OBJECTS)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic-functions $(LDFLAGS) \
	  -o $@ $(C_OBJECTS) $(SANITIZER_LIBS) $$($(PKG_CONFIG) --libs $(PACKAGES))

$(LIB)/libamqplocks.so: $(LIB)/$(SHARED)
	@ln -sf $(SHARED) $(LIB)/$(SONAME) && ln -sf $(SONAME) $@

$(LIB)/amqplocks.h: src/amqplocks.h
	@mkdir -p $(@D) && cp $< $@

# The archive exports one symbol: luaopen_amqplocks.
$(LIB)/libamqplocks-$(LUA).a: $(OBJECTS) $(EMBEDDED)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(LD) -r -o $(BUILD)/libamqplocks-lua.o $^
	$(Q)$(OBJCOPY) --keep-global-symbol=luaopen_amqplocks $(BUILD)/libamqplocks-lua.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/libamqplocks-lua.o

$(EMBEDDED): ALL_CFLAGS += -I$(BUILD)/embed
$(EMBEDDED): $(PARTS)

-include $(EMBEDDED:.o=.d)

# This runs each time: no date of a file tells that a Lua file was deleted.
$(PARTS): always
	@mkdir -p $(@D)
	@src/embed/pack $(LUA_FILES) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# $(call PC,libdir,includedir): the directories, in build/lib or as installed. pkg-config needs blanks escaped by a
# backslash.
BLANK := $() $()
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
# for packages that have the library in another one. CURL=0 builds without libcurl, and without the verb "top". So does
# STATIC=1: Debian has no static form of what its libcurl needs.

HAS_CURL := $(filter-out 0,$(CURL))
CLI := build/cli$(patsubst build/$(LUA)%,%,$(BUILD))$(if $(STATIC),-static)$(if $(DYNAMIC),-dynamic)$(if $(HAS_CURL),,-nocurl)
CLI_OBJECTS = $(patsubst src/%.c,$(BUILD)/objects/%.o,$(wildcard src/cli/common/*.c src/cli/$(1)/*.c))
CLI_WITHOUT := $(BUILD)/objects/cli/admin/$(if $(HAS_CURL),http_none,http).o
CLI_LIBRARY = $(if $(DYNAMIC),$(LIB)/libamqplocks.so,$(C_OBJECTS))
CLI_PACKAGES = $(1) $(if $(DYNAMIC),,$(PACKAGES))
CLI_LINK = $(CC) $(ALL_CFLAGS) $(if $(STATIC),-static) $(LDFLAGS) -o $@ $(filter %.o,$^) $(SANITIZER_LIBS) \
	$(if $(DYNAMIC),-L$(LIB) -lamqplocks) \
	$(if $(strip $(CLI_PACKAGES)),$$($(PKG_CONFIG) $(if $(STATIC),--static) --libs $(CLI_PACKAGES)))

cli: $(CLI)/amqp-lock $(CLI)/amqp-lock-admin ## the commands amqp-lock and amqp-lock-admin, in build/cli; STATIC=1

$(CLI)/amqp-lock: $(call CLI_OBJECTS,lock) $(CLI_LIBRARY)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(call CLI_LINK,)

$(CLI)/amqp-lock-admin: $(filter-out $(CLI_WITHOUT),$(call CLI_OBJECTS,admin)) $(CLI_LIBRARY)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(call CLI_LINK,jansson $(if $(HAS_CURL),libcurl))

-include $(wildcard $(BUILD)/objects/cli/*/*.d)

MAN_PAGES := $(wildcard docs/man/*.1)

install-cli: cli ## install the commands, their manual pages and their completion for bash
	@echo "installing to $(DESTDIR)$(BINDIR) and $(DESTDIR)$(MANDIR)"
	$(Q)$(PLACE) file 755 $(CLI)/amqp-lock "$(BINDIR)/amqp-lock"
	$(Q)$(PLACE) file 755 $(CLI)/amqp-lock-admin "$(BINDIR)/amqp-lock-admin"
	$(Q)for page in $(MAN_PAGES); do $(PLACE) file 644 $$page "$(MANDIR)/man1/$${page##*/}" || exit; done
	$(Q)for command in amqp-lock amqp-lock-admin; do \
	  $(PLACE) file 644 src/cli/common/completion.bash "$(COMPLETIONDIR)/$$command" || exit; done

# ---- running ----

demo: prepare build ## run examples/demo, with a RabbitMQ of its own
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua

demo-db: prepare ## eight processes share a lock in a Redis of their own; one is killed, and an operator decides
	@$(WITH_ENV) $(RUN_LUA) examples/dblocks/demo.lua

picture: prepare build ## draw docs/demo.svg from a run of the demo
	@echo "running the demo, which takes 20 seconds"
	@mkdir -p build/demo
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua >build/demo/log.txt || \
	  { cat build/demo/log.txt >&2; exit 1; }
	@$(WITH_ENV) $(RUN_LUA) tools/picture.lua build/demo/log.txt >build/demo/demo.svg
	@cp build/demo/demo.svg docs/demo.svg && echo "docs/demo.svg is drawn"

REPORT ?= build/bench/report.txt

picture-rivals: ## draw docs/rivals.svg from a run of the bench beside other lock services; or from REPORT=file
ifneq ($(origin REPORT),command line)
	@$(MAKE) --no-print-directory bench BENCH=tools/bench/rivals.lua
endif
	@mkdir -p build/bench
	@$(WITH_ENV) $(RUN_LUA) tools/comparison.lua $(REPORT) >build/bench/rivals.svg
	@cp build/bench/rivals.svg docs/rivals.svg && echo "docs/rivals.svg is drawn"

picture-dashboard: prepare build ## draw docs/dashboard.svg: what a real Prometheus answers about a run of examples/metrics
	@echo "running the service of examples/metrics, which takes a minute"
	@mkdir -p build/dashboard
	@$(WITH_ENV) AMQP_URL= spec/support/broker with $(RUN_LUA) tools/dashboard_run.lua >build/dashboard/answers.txt
	@$(WITH_ENV) $(RUN_LUA) tools/dashboard.lua build/dashboard/answers.txt >build/dashboard/dashboard.svg
	@cp build/dashboard/dashboard.svg docs/dashboard.svg && echo "docs/dashboard.svg is drawn"

# Builds with all processors, in a make of its own: specs that call make must not use the job server of this make.
BUILD_FOR_SPECS = +@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$$(nproc 2>/dev/null || echo 2)) \
	build build-for-nginx replays cli

test: prepare ## all specs, or SPEC=path; SANITIZE=1 or thread, GC=1
	$(BUILD_FOR_SPECS) lib lib-lua
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/unit spec/sim spec/broker)

# nginx runs LuaJIT, with whichever Lua the specs run.
build-for-nginx: | $(READY)
	@[ $(BUILD) = build/luajit ] || $(MAKE) --no-print-directory $(if $(V),,-s) LUA=luajit SANITIZE= WERROR= build

test-unit: prepare ## the unit specs, which need no broker, or SPEC=path
	$(BUILD_FOR_SPECS)
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/unit)

test-sim: prepare ## the specs against a model of the broker, or SPEC=path
	$(BUILD_FOR_SPECS)
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/sim)

test-db: prepare ## db-locks on real databases, or SPEC=path; CASSANDRA=0: without Cassandra
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/dblocks)

torture-db: prepare ## db-locks under SIGKILL, SIGSTOP and cut connections: STORE=redis [SECONDS=60] [SEED=]
	@$(WITH_ENV) STORE=$(STORE) SECONDS=$(SECONDS) SEED=$(SEED) $(RUN_LUA) tools/dblocks/torture.lua

figures-db: prepare ## what operations of db-locks cost on a database: STORE=redis [READERS=9] [TIMES=50]
	@$(WITH_ENV) STORE=$(STORE) READERS=$(READERS) TIMES=$(TIMES) $(RUN_LUA) tools/dblocks/figures.lua

break-db: prepare ## break db-locks on purpose; the torture must catch it: [BREAKAGE=name] [SECONDS=20]
	@$(WITH_ENV) SECONDS_EACH=$(SECONDS) tools/dblocks/breakages/run $(BREAKAGE)

# The versions of Lua that the module supports, but for lua5.5, of which Debian has packages only in sid: see SUITES.
LUAS := lua5.4 lua5.3 lua5.1 luajit

matrix: ## all specs, or SPEC=path, under every Lua, one after the other
	+@tools/matrix $(LUAS) -- $(if $(SPEC),SPEC="$(SPEC)") $(if $(GC),GC=1)

# Debian's releases, each with its RabbitMQ and rabbitmq-c. sid:bookworm is sid with the RabbitMQ of bookworm.
SUITES := bookworm trixie sid bookworm:sid sid:bookworm

matrix-brokers: ## all specs, or SPEC=path, with other RabbitMQs and rabbitmq-cs, in chroots; as root; SUITES=sid
	@LUA=$(LUA) tools/matrix $(SUITES) -- $(if $(SPEC),SPEC="$(SPEC)") $(if $(GC),GC=1)

soak: export AMQPLOCKS_SOAK = 1
soak: test ## the long form of the specs

soak-suite: prepare ## the specs with a broker again and again, beside a load: [N=20] [LOAD=8] [SPEC=path]
	$(BUILD_FOR_SPECS) lib lib-lua
	@$(WITH_ENV) N=$(N) LOAD=$(LOAD) spec/support/soak-suite $(or $(SPEC),spec/sim spec/broker)

prove: prepare build ## clients on a real broker, with injected faults: SECONDS=300, SEED=, FAULTS=a,b, KIND=a,b
	@$(WITH_ENV) $(RUN_LUA) tools/prove/main.lua seconds=$(SECONDS) seed=$(SEED) faults=$(FAULTS) kind=$(KIND)

# SUITE: in a chroot (tools/room), with the RabbitMQ of another Debian release. It takes root.
prove-fenced: prepare ## fenced locks, while processes get SIGKILL and SIGSTOP: [SECONDS=60] [SEED=] [LEAST=locks] [SUITE=sid]
prove-fast: prepare ## fast mutexes, with the same variables
prove-many: prepare ## several slots at once, beside clients that take one, with the same variables
prove-fenced prove-fast prove-many:
ifneq ($(filter-out host,$(SUITE)),)
	@mkdir -p build/prove
	@tools/room -b build/prove $(SUITE) make $@ SECONDS=$(SECONDS) SEED=$(SEED) LEAST=$(LEAST) \
	  PROVE=$(CURDIR)/build/prove
else
	@$(MAKE) --no-print-directory build
	@$(WITH_ENV) SECONDS=$(SECONDS) SEED=$(SEED) LEAST=$(LEAST) PROVE=$(or $(PROVE),build/prove) KIND=$(@:prove-%=%) \
	  $(RUN_LUA) tools/prove/hammered.lua
endif

# Lua modules that only the bench uses, for comparison; only the bench finds them.
BENCH_MODULES := $(patsubst tools/bench/%.c,$(BUILD)/bench/%.so,$(wildcard tools/bench/*.c))

$(BUILD)/bench/%.so: tools/bench/%.c Makefile | $(READY)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -fvisibility=default -shared $(LDFLAGS) $$($(PKG_CONFIG) --cflags $(LUA_PACKAGE) $(PACKAGES)) \
	  -o $@ $< $$($(PKG_CONFIG) --libs $(PACKAGES))

bench: prepare build build-for-nginx cli $(BENCH_MODULES) ## benchmarks: ratios, budgets, comparison with other locks; or BENCH=file
	@$(WITH_ENV) LUA_CPATH="$(CURDIR)/$(BUILD)/bench/?.so;$$LUA_CPATH" spec/support/broker with \
	  tools/bench/run $(or $(BENCH),tools/bench/*.lua)

# Runs in a chroot (tools/room) with the RabbitMQ of another Debian release. SUITE=host uses this machine's.
prove-cluster: prepare ## 3 nodes partitioned, frozen, killed: [SUITE=sid|host] [SECONDS=] [SEED=] [STORY=words] [KINDS=]
ifeq ($(SUITE),host)
	@$(MAKE) --no-print-directory build
	@$(WITH_ENV) SECONDS=$(SECONDS) SEED=$(SEED) STORY="$(STORY)" KINDS="$(KINDS)" PROVE=$(or $(PROVE),build/prove) \
	  tools/prove/three-nodes with $(RUN_LUA) tools/prove/cluster.lua
else
	@mkdir -p build/prove
	@tools/room -b build/prove $(or $(SUITE),sid) make prove-cluster SUITE=host SECONDS=$(SECONDS) SEED=$(SEED) \
	  PROVE=$(CURDIR)/build/prove STORY="$(STORY)" KINDS="$(KINDS)" CLUSTER_TICK=$(CLUSTER_TICK) CLUSTER_PARTITION=$(CLUSTER_PARTITION)
endif

# The core and the bytes transport: all the sources of a session without sockets.
FUZZED := $(filter src/core/% $(addprefix src/transport/,bytes.c frames.c headers.c input.c output.c),$(SOURCES))

build/prove/million: tools/prove/million.c tools/fuzz/peer.c tools/fuzz/wire.c $(FUZZED) | $(READY)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -g -std=c11 -Wall -Wextra -Wpedantic -D_GNU_SOURCE -Isrc -Itools/fuzz $$($(PKG_CONFIG) --cflags librabbitmq) \
	  -o $@ $^ $$($(PKG_CONFIG) --libs librabbitmq)

prove-memory: prepare build $(BENCH_MODULES) build/prove/million ## a million operations in constant memory; [OPERATIONS=50000] on a broker
	@build/prove/million
	@$(WITH_ENV) LUA_CPATH="$(CURDIR)/$(BUILD)/bench/?.so;$$LUA_CPATH" OPERATIONS=$(OPERATIONS) SESSIONS=$(SESSIONS) \
	  spec/support/broker with $(RUN_LUA) tools/prove/memory.lua

# ---- fuzzing ----
#
# Targets for libFuzzer. The same targets without libFuzzer replay the kept corpus, also where there is no clang; the
# specs run these.

FUZZ_CC := clang
FUZZ_TARGETS := session url
FUZZ_CFLAGS := -O2 -g -std=c11 -Wall -Wextra -D_GNU_SOURCE -Isrc -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined
# Coverage is measured in the library's objects only, not in the fuzz targets.
FUZZ_COVERAGE := -fsanitize-coverage=inline-8bit-counters,pc-table
FUZZ_OBJECTS := $(FUZZED:src/%.c=build/fuzz/objects/%.o)
FUZZ_HELPERS := $(addprefix build/fuzz/objects/fuzz/,peer.o wire.o)
REPLAYS := $(FUZZ_TARGETS:%=$(BUILD)/fuzz/replay-%)

export AMQPLOCKS_REPLAY = $(CURDIR)/$(BUILD)/fuzz/replay-

build/fuzz/objects/%.o: src/%.c Makefile | $(READY)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) $(FUZZ_COVERAGE) $$($(PKG_CONFIG) --cflags librabbitmq) -MMD -MP -c -o $@ $<

build/fuzz/objects/fuzz/%.o: tools/fuzz/%.c Makefile | $(READY)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) $$($(PKG_CONFIG) --cflags librabbitmq) -MMD -MP -c -o $@ $<

# These files play the broker, and take most of the time. They are not under test: no sanitizers.
$(FUZZ_HELPERS): FUZZ_CFLAGS := -O2 -g -std=c11 -Wall -Wextra -D_GNU_SOURCE

build/fuzz/session: build/fuzz/objects/fuzz/mutate.o

$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: build/fuzz/objects/fuzz/%.o $(FUZZ_HELPERS) $(FUZZ_OBJECTS)
	@echo "building $@"
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer -o $@ $^ $$($(PKG_CONFIG) --libs librabbitmq)

-include $(wildcard build/fuzz/objects/*/*.d build/fuzz/objects/*/*/*.d)

$(REPLAYS): $(BUILD)/fuzz/replay-%: tools/fuzz/replay.c tools/fuzz/%.c tools/fuzz/peer.c tools/fuzz/wire.c \
		$(FUZZED:src/%.c=$(BUILD)/objects/%.o) tools/fuzz/peer.h tools/fuzz/wire.h
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$($(PKG_CONFIG) --cflags librabbitmq) -o $@ $(filter %.c %.o,$^) $(SANITIZER_LIBS) \
	  $$($(PKG_CONFIG) --libs librabbitmq)

replays: $(REPLAYS)

fuzz: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## coverage-guided fuzzing: SECONDS=3600 [TARGET=session|url]
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do LUA=$(LUA) tools/fuzz/run fuzz $$target $(or $(SECONDS),3600) || exit; done

fuzz-show: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## replay one input and print what happens: TARGET=session|url INPUT=file
	@tools/fuzz/run show $(TARGET) $(INPUT)

fuzz-keep: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## reduce the corpus to the smallest one with the same coverage, in tools/fuzz/corpus
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do LUA=$(LUA) tools/fuzz/run keep $$target || exit; done

# LuaJIT, the fastest, unless LUA names another one.
PROVE_LUA := $(if $(filter file,$(origin LUA)),luajit,$(LUA))

ifeq ($(LUA),$(PROVE_LUA))
prove-sim: prepare build ## stories (simulated runs) against a model broker: [SECONDS=60|STORIES=n] [FROM=seed] [STORY=name] [SEED=number] [JOBS=cores]
	@$(WITH_ENV) SECONDS=$(SECONDS) STORIES=$(STORIES) FROM=$(FROM) STORY="$(STORY)" SEED=$(SEED) JOBS=$(or $(JOBS),$$(nproc)) $(RUN_LUA) tools/prove/simulation.lua

prove-breakages: prepare build ## break the library on purpose; a story must catch it: [BREAKAGE=name] [SECONDS=60] [SEED=number]
	@$(WITH_ENV) LUA=$(LUA) SECONDS_EACH=$(SECONDS) SEED=$(SEED) tools/prove/breakages/run $(BREAKAGE)

mutate: prepare build build-for-nginx cli ## change the C code in small ways; a spec must notice: [N=300] [SEED=1] [JOBS=4] [IN=folder] [SPEC=files] [MUTANT=file:line:column:kind]
	@$(WITH_ENV) AMQP_URL= N=$(N) SEED=$(SEED) JOBS=$(JOBS) MUTANT=$(MUTANT) IN="$(IN)" SPEC="$(SPEC)" tools/mutate/run
else
prove-sim prove-breakages mutate:
	+@$(MAKE) --no-print-directory LUA=$(PROVE_LUA) $@
endif

# ---- checks and upkeep ----

ROCKSPECS := amqp-locks-scm-1.rockspec db-locks/db-locks-scm-1.rockspec
C_FILES := $(wildcard src/*.h src/*/*.[ch] src/*/*/*.[ch] examples/*/*.c tools/fuzz/*.[ch] tools/prove/*.c)
LUACHECKED := $(wildcard lua db-locks spec tools examples) .busted
COMPILERS := gcc $(if $(shell command -v clang),clang)

check: check-rockspec check-includes check-lua check-format check-man check-warnings check-fuzz ## luacheck, clang-format, manual pages, -Werror with gcc and clang, a minute of fuzzing; -k: go on after a failure

check-includes:
	@echo "checking which files of src include which"
	$(Q)tools/check-includes

check-lua: prepare
	@echo "checking $(LUACHECKED) with luacheck"
	$(Q)luacheck --quiet --no-cache $(LUACHECKED)

check-format: prepare
	@echo "checking C files with clang-format"
	$(Q)clang-format --dry-run -Werror $(C_FILES)

# mandoc has no warning for a quotation that another one begins inside, as .Dq does that ends with its line.
check-man: prepare
	@echo "checking docs/man with mandoc and groff"
	$(Q)mandoc -T lint -W warning docs/man/*
	$(Q)for page in docs/man/*; do groff -ww -K utf8 -mandoc -T utf8 $$page 2>&1 >/dev/null | { ! grep .; } || exit; \
	  ! mandoc -T utf8 $$page | tr '\n' ' ' | grep -o '“[^”]*“[^”]*' || exit; done

check-warnings: prepare
	$(Q)for cc in $(COMPILERS); do $(MAKE) --no-print-directory -B build lib lib-lua cli replays CC=$$cc WERROR=1 || exit; done

# libFuzzer needs clang. Without clang this is skipped and all other checks still run.
check-fuzz: prepare
	@if command -v $(FUZZ_CC) >/dev/null; then $(MAKE) --no-print-directory fuzz SECONDS=30; \
	  else echo "there is no $(FUZZ_CC): fuzzing is SKIPPED"; fi

# emmylua_check reads the annotations of the Lua module as editors do. It is a program in Rust that takes minutes to
# build, so `make check` does without. spec/unit/lua/annotations_spec.lua compares them with the code, and needs nothing.
# .emmyrc.json leaves out what is no matter of annotations: private fields, modules of others, whether a value may be nil.
CHECKER_PLACE := build/annotations-checker

.PHONY: check-annotations annotations-checker
check-annotations: ## the types in the annotations of the Lua module, by emmylua_check if there is one
	@checker=$$(PATH="$(CURDIR)/$(CHECKER_PLACE)/bin:$$PATH" command -v emmylua_check) || { \
	  echo "there is no emmylua_check, nothing was checked: \`make annotations-checker\` builds it with cargo"; exit 0; }; \
	echo "checking the annotations of lua with $$checker"; "$$checker" --warnings-as-errors -c .emmyrc.json lua

annotations-checker:
	cargo install emmylua_check --version 0.25.1 --locked --root $(CHECKER_PLACE)

# nginx-lua-prometheus is in no Debian package. spec/broker/openresty_metrics_spec.lua finds it there.
.PHONY: metrics-rock
metrics-rock: prepare ## nginx-lua-prometheus from LuaRocks, in build/rocks: the specs of metrics in nginx need it
	@luarocks --lua-version=5.1 --tree=build/rocks install nginx-lua-prometheus 0.20240525

format: prepare ## clang-format C files in place
	@echo "formatting C files"
	$(Q)clang-format -i $(C_FILES)

rockspec: ## update the lists of files in the rockspecs
	@echo "writing $(ROCKSPECS)"
	$(Q)for file in $(ROCKSPECS); do now=$$(spec/support/rockspec $$file) && printf '%s\n' "$$now" >$$file || exit; done

check-rockspec:
	@echo "checking $(ROCKSPECS)"
	@for file in $(ROCKSPECS); do spec/support/rockspec $$file | diff -u $$file - || \
	  { echo "$$file does not list the files that exist: run make rockspec" >&2; exit 1; }; done

# ---- packages and releases ----

.PHONY: deb check-deb symbols release

SYMBOLS := debian/libamqplocks$(basename $(VERSION)).symbols

symbols: lib ## update the list of functions in debian/
	@echo "writing $(SYMBOLS)"
	$(Q)now=$$(tools/release/symbols $(LIB)/libamqplocks.so $(VERSION) $(SYMBOLS)) && printf '%s\n' "$$now" >$(SYMBOLS)

deb: prepare ## build the Debian packages of the last commit, in build/deb, and check them with lintian
	@tools/release/deb --sources build/deb
	@tools/release/deb build/deb

check-deb: ## build, install, use and purge the packages in clean chroots; as root; [DEB_SUITES="bookworm trixie"]
	@tools/release/check-deb $(or $(DEB_SUITES),bookworm trixie)

release: ## tarball, rockspec and tag of the last commit: VERSION=0.2.0 RELEASE_URL=https://... [TARBALL_URL=]
	@tools/release/release "$(if $(filter command%,$(origin VERSION)),$(VERSION))" "$(RELEASE_URL)" "$(TARBALL_URL)"

clean: ## remove build/
	rm -rf build
