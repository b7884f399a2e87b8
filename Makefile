# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# `make help` lists what there is to make.

LUA ?= lua5.4
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
SANITIZE ?=
WERROR ?=
V ?=

BUILD := build/$(LUA)$(if $(SANITIZE),-sanitize$(patsubst thread,-thread,$(SANITIZE:1=)))$(if $(WERROR),-$(CC)-werror)
CORE := $(BUILD)/amqplocks/core.so
SOURCES := $(sort $(wildcard src/core/*.c src/transport/*.c src/lua/*.c))
OBJECTS := $(SOURCES:src/%.c=$(BUILD)/objects/%.o)
LUA_FILES := $(sort $(wildcard lua/amqplocks/*.lua lua/amqplocks/*/*.lua))
# Lua, as the specs run it: the sanitizer has to be in the process before the module is loaded.
SANITIZED_LUA := $(BUILD)/bin/$(LUA)
RUN_LUA := $(if $(SANITIZE),$(CURDIR)/$(SANITIZED_LUA),$(LUA))
LUA_VERSION := $(if $(filter luajit,$(LUA)),5.1,$(LUA:lua%=%))
LUA_SUFFIX := $(subst .,_,$(LUA_VERSION))

# Asked when a recipe runs, not before: `prepare` may just have installed what is asked for.
PACKAGES = librabbitmq libssl libcrypto
LUA_PACKAGE = $$(for p in $(LUA) lua-$(LUA_VERSION) lua$(subst .,,$(LUA_VERSION)); do \
	pkg-config --exists $$p && echo $$p && break; done)

# nodelete: a module that was unloaded has no names left for the report of its leaks.
# libubsan is linked in and hidden: next to the address sanitizer, a shared one does not find its way to the file for its
# reports.
ifeq ($(SANITIZE),thread)
  SANITIZER := -fsanitize=thread
  SANITIZER_PRELOAD := libtsan.so
else ifneq ($(SANITIZE),)
  SANITIZER := -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wl,-z,nodelete
  SANITIZER_LIBS := -static-libubsan -Wl,--exclude-libs,libubsan.a
  SANITIZER_PRELOAD := libasan.so
endif
ALL_CFLAGS := $(CFLAGS) -std=c11 -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -fvisibility=hidden -fPIC -pthread \
	-D_GNU_SOURCE -Isrc $(SANITIZER) $(if $(SANITIZE),-fno-omit-frame-pointer)

# What this run needs from the system, for spec/support/prepare.
GOALS := $(or $(MAKECMDGOALS),all)
NEEDS := build $(if $(filter demo bench,$(GOALS)),demo) $(if $(filter test test-% soak,$(GOALS)),demo test) \
	$(if $(filter check check-% format,$(GOALS)),check)

Q := $(if $(V),,@)

export GC
export SANITIZE_REPORTS := $(if $(SANITIZE),$(CURDIR)/$(BUILD)/reports)
.DELETE_ON_ERROR:
.PHONY: all build prepare help env demo test test-unit soak bench install clean \
	check check-lua check-format check-warnings check-rockspec format rockspec

all: build

help: ## this list
	@echo "make [TARGET] [LUA=lua5.4|lua5.3|lua5.1|luajit] [SANITIZE=1|thread] [GC=1] [V=1]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1	\2/p' Makefile | expand -t 14

# ---- building ----

prepare:
	@LUA=$(LUA) spec/support/prepare $(NEEDS)

build: $(CORE) $(if $(SANITIZE),$(SANITIZED_LUA)) ## the default: install what is missing, build the C module in build/

$(CORE): $(OBJECTS)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -shared $(LDFLAGS) -o $@ $(OBJECTS) $(SANITIZER_LIBS) $$(pkg-config --libs $(PACKAGES))

$(BUILD)/objects/%.o: src/%.c Makefile | prepare
	@echo "compiling $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $$(pkg-config --cflags $(LUA_PACKAGE) $(PACKAGES)) -MMD -MP -c -o $@ $<

-include $(OBJECTS:.o=.d)

$(SANITIZED_LUA): spec/support/preload.c Makefile | $(CORE)
	@echo "making $@, a $(LUA) with the sanitizers in it"
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -fPIC -o $@.so $<
	@printf '#!/usr/bin/env bash\nLD_PRELOAD="%s %s" exec -a "$$0" %s "$$@"\n' \
	  "$$($(CC) -print-file-name=$(SANITIZER_PRELOAD))" "$(CURDIR)/$@.so" "$$(command -v $(LUA))" >$@ && chmod +x $@

# Lua 5.3 and 5.4 look at LUA_PATH_5_4 (say) instead of LUA_PATH when it is set; then so must we.
PRINT_ENV = suffix=; [ -z "$${LUA_PATH_$(LUA_SUFFIX)+set}$${LUA_CPATH_$(LUA_SUFFIX)+set}" ] || suffix=_$(LUA_SUFFIX); \
	echo "export LUA_PATH$$suffix='$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;'\"\$${LUA_PATH$$suffix:-;}\""; \
	echo "export LUA_CPATH$$suffix='$(CURDIR)/$(BUILD)/?.so;'\"\$${LUA_CPATH$$suffix:-;}\""

env: ## print the settings that make this checkout's module loadable: eval "$(make -s env)"
	@$(MAKE) --no-print-directory build >&2
	@$(PRINT_ENV)

# The rest of the line runs with this checkout's module, and $$LUA is the Lua to run it with.
WITH_ENV = eval "$$($(PRINT_ENV))" && LUA=$(RUN_LUA)

LUA_DIR := $(DESTDIR)$(PREFIX)/share/lua/$(LUA_VERSION)
LUA_CDIR := $(DESTDIR)$(PREFIX)/lib/lua/$(LUA_VERSION)

install: build ## install to $(DESTDIR)$(PREFIX) for $(LUA)
	@echo "installing to $(DESTDIR)$(PREFIX)"
	$(Q)for file in $(LUA_FILES:lua/%=%); do install -D -m 644 "lua/$$file" "$(LUA_DIR)/$$file" || exit; done
	$(Q)install -D -m 755 $(CORE) "$(LUA_CDIR)/amqplocks/core.so"

# ---- running ----

demo: prepare build ## see it work, with a RabbitMQ that comes and goes
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua

test: prepare build ## all specs, or SPEC=path; SANITIZE=1 or thread, GC=1
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/unit spec/broker)

test-unit: prepare build ## the specs that need no broker
	@$(WITH_ENV) spec/support/suite spec/unit

soak: export AMQPLOCKS_SOAK = 1
soak: test ## the long form of the specs

# What the bench compares with: Lua modules of its own, found only by it.
BENCH_MODULES := $(patsubst spec/bench/%.c,$(BUILD)/bench/%.so,$(wildcard spec/bench/*.c))

$(BUILD)/bench/%.so: spec/bench/%.c Makefile | prepare
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -fvisibility=default -shared $$(pkg-config --cflags $(LUA_PACKAGE) $(PACKAGES)) \
	  -o $@ $< $$(pkg-config --libs $(PACKAGES))

bench: prepare build $(BENCH_MODULES) ## ratios to bare rabbitmq-c
	@$(WITH_ENV) LUA_CPATH="$(CURDIR)/$(BUILD)/bench/?.so;$$LUA_CPATH" spec/support/broker with \
	  sh -ec 'for file in $(or $(BENCH),spec/bench/*.lua); do echo "running $$file"; $$LUA "$$file"; done'

# ---- looking after it ----

ROCKSPEC := amqp-locks-scm-1.rockspec
C_FILES := $(wildcard src/*.h src/*/*.[ch])
LUACHECKED := $(wildcard lua spec examples) .busted
COMPILERS := gcc $(if $(shell command -v clang),clang)

check: check-rockspec check-lua check-format check-warnings ## luacheck, clang-format, -Werror with gcc and clang; -k: all of it

check-lua: prepare
	@echo "checking $(LUACHECKED) with luacheck"
	$(Q)luacheck --quiet --no-cache $(LUACHECKED)

check-format: prepare
	@echo "checking src with clang-format"
	$(Q)clang-format --dry-run -Werror $(C_FILES)

check-warnings: prepare
	$(Q)for cc in $(COMPILERS); do $(MAKE) --no-print-directory -B build CC=$$cc WERROR=1 || exit; done

format: prepare ## clang-format src/ in place
	@echo "formatting src"
	$(Q)clang-format -i $(C_FILES)

rockspec: ## write the lists of files in the rockspec anew
	@echo "writing $(ROCKSPEC)"
	$(Q)now=$$(spec/support/rockspec $(ROCKSPEC)) && printf '%s\n' "$$now" >$(ROCKSPEC)

check-rockspec:
	@echo "checking $(ROCKSPEC)"
	@spec/support/rockspec $(ROCKSPEC) | diff -u $(ROCKSPEC) - || \
	  { echo "$(ROCKSPEC) is behind the files that are there: make rockspec" >&2; exit 1; }

clean: ## remove build/
	rm -rf build
