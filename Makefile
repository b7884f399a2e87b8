# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# `make help` lists what there is to make.

comma := ,
LUA ?= lua5.4
PREFIX ?= /usr/local
CFLAGS ?= -O2 -g
SANITIZE ?=
WERROR ?=
V ?=

BUILD := build/$(LUA)$(if $(SANITIZE),-sanitize)$(if $(WERROR),-$(CC)-werror)
CORE := $(BUILD)/amqplocks/core.so
SOURCES := $(sort $(wildcard src/core/*.c src/transport/*.c src/lua/*.c))
OBJECTS := $(SOURCES:src/%.c=$(BUILD)/%.o)
LUA_FILES := $(wildcard lua/amqplocks/*.lua)
LUA_VERSION := $(if $(filter luajit,$(LUA)),5.1,$(LUA:lua%=%))
LUA_SUFFIX := $(subst .,_,$(LUA_VERSION))

# Asked when a recipe runs, not before: `prepare` may just have installed what is asked for.
PACKAGES = librabbitmq libssl libcrypto
LUA_PACKAGE = $$(for p in $(LUA) lua-$(LUA_VERSION) lua$(subst .,,$(LUA_VERSION)); do \
	pkg-config --exists $$p && echo $$p && break; done)

SANITIZER := $(if $(SANITIZE),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
override CFLAGS += -std=c11 -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -fvisibility=hidden -fPIC -pthread \
	-D_GNU_SOURCE -Isrc $(SANITIZER)

# What this run needs from the system, for spec/support/prepare.
GOALS := $(or $(MAKECMDGOALS),all)
NEEDS := build $(if $(filter demo bench,$(GOALS)),demo) $(if $(filter test test-% soak,$(GOALS)),demo test) \
	$(if $(filter check,$(GOALS)),check)

Q := $(if $(V),,@)

export LUA SANITIZE GC
.DELETE_ON_ERROR:
.PHONY: all build prepare help env demo test test-unit soak bench check rockspec check-rockspec install clean

all: build

help: ## this list
	@echo "make [TARGET] [LUA=lua5.4|lua5.3|lua5.1|luajit] [SANITIZE=1] [GC=1] [V=1]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1	\2/p' Makefile | expand -t 14

# ---- building ----

prepare:
	@spec/support/prepare $(NEEDS)

build: $(CORE) ## the default: install what is missing, build the C module in build/

$(CORE): $(OBJECTS)
	@echo "building $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -shared $(LDFLAGS) -o $@ $(OBJECTS) $$(pkg-config --libs $(PACKAGES))

$(BUILD)/%.o: src/%.c | prepare
	@echo "compiling $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $$(pkg-config --cflags $(LUA_PACKAGE) $(PACKAGES)) -MMD -MP -c -o $@ $<

-include $(OBJECTS:.o=.d)

# Lua 5.3 and 5.4 look at LUA_PATH_5_4 (say) instead of LUA_PATH when it is set; then so must we.
env: ## print the settings that make this checkout's module loadable: eval "$(make -s env)"
	@$(MAKE) --no-print-directory build >&2
	@suffix=; [ -z "$${LUA_PATH_$(LUA_SUFFIX)+set}$${LUA_CPATH_$(LUA_SUFFIX)+set}" ] || suffix=_$(LUA_SUFFIX); \
	echo "export LUA_PATH$$suffix='$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;'\"\$${LUA_PATH$$suffix:-;}\""; \
	echo "export LUA_CPATH$$suffix='$(CURDIR)/$(BUILD)/?.so;'\"\$${LUA_CPATH$$suffix:-;}\""

# Runs the rest of the line with this checkout's module.
WITH_ENV = eval "$$($(MAKE) -s --no-print-directory env)" &&

install: build ## install to $(DESTDIR)$(PREFIX) for $(LUA)
	@echo "installing to $(DESTDIR)$(PREFIX)"
	$(Q)install -d $(DESTDIR)$(PREFIX)/share/lua/$(LUA_VERSION)/amqplocks $(DESTDIR)$(PREFIX)/lib/lua/$(LUA_VERSION)/amqplocks
	$(Q)install -m 644 $(LUA_FILES) $(DESTDIR)$(PREFIX)/share/lua/$(LUA_VERSION)/amqplocks
	$(Q)install -m 755 $(CORE) $(DESTDIR)$(PREFIX)/lib/lua/$(LUA_VERSION)/amqplocks

clean: ## remove build/
	rm -rf build

# ---- running ----

demo: prepare build ## see it work, with a RabbitMQ that comes and goes
	@$(WITH_ENV) spec/support/broker with $(LUA) examples/demo/demo.lua

test: prepare build ## all specs, or SPEC=path; SANITIZE=1, GC=1
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/unit spec/broker)

test-unit: prepare build ## the specs that need no broker
	@$(WITH_ENV) spec/support/suite spec/unit

soak: export AMQPLOCKS_SOAK = 1
soak: test ## the long form of the specs

bench: prepare build ## ratios to bare rabbitmq-c
	@$(WITH_ENV) spec/support/broker with sh -ec 'for file in spec/bench/*.lua; do $(LUA) "$$file"; done'
