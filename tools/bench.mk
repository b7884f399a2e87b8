# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# What locks cost. The Lua modules here are for comparison: only the bench finds them.

BENCH_MODULES := $(patsubst tools/bench/%.c,$(BUILD)/bench/%.so,$(wildcard tools/bench/*.c))
WITH_BENCH = $(WITH_ENV) LUA_CPATH="$(CURDIR)/$(BUILD)/bench/?.so;$$LUA_CPATH"

$(BUILD)/bench/%.so: tools/bench/%.c Makefile tools/bench.mk | $(READY)
	$(BUILDING)
	$(Q)$(CC) $(ALL_CFLAGS) -fvisibility=default -shared $(LDFLAGS) $$($(PKG_CONFIG) --cflags $(LUA_PACKAGE) $(PACKAGES)) \
	  -o $@ $< $$($(PKG_CONFIG) --libs $(PACKAGES))

bench: prepare build build-for-nginx cli $(BENCH_MODULES) ## benchmarks: ratios, budgets, comparison with other locks; or BENCH=file
	@ulimit -n 65536 2>/dev/null || ulimit -n "$$(ulimit -Hn)"; \
	  $(WITH_BENCH) spec/support/broker with tools/bench/run $(or $(BENCH),tools/bench/*.lua)

# One file for the servers of this machine, one for the RabbitMQ of each other suite.
RIVALS_REPORT = $(CURDIR)/build/bench/rivals$(addprefix -,$(filter-out host,$(SUITE))).txt

bench-rivals: ## locks beside those of Redis, etcd, PostgreSQL, MariaDB; [SUITE=sid]: only ours, with its RabbitMQ, as root
bench-rivals: prepare $(if $(filter-out host,$(SUITE)),,build $(BENCH_MODULES))
	@$(if $(filter-out host,$(SUITE)),mkdir -p build/bench && tools/room -b build/bench $(SUITE) make $@ SUITE=host \
	  REPORT=$(RIVALS_REPORT),$(WITH_BENCH) REPORT=$(or $(REPORT),$(RIVALS_REPORT)) spec/support/broker with \
	  tools/bench/run tools/bench/rivals.lua)

bench-cluster: ## mutexes of three nodes of RabbitMQ 4.3 beside those of three of etcd, as root: [SUITE=sid|host]
bench-cluster: prepare $(if $(filter host,$(SUITE)),build $(BENCH_MODULES))
	@$(if $(filter host,$(SUITE)),$(WITH_BENCH) tools/prove/three-nodes with tools/bench/run tools/bench/rivals.lua,$(subst \
	  tools/room,tools/room -f bench-cluster,$(IN_ROOM)))
