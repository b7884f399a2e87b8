# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Provers: faults on real brokers, stories on a model of the broker, the library and its specs broken on purpose. The
# programs read their settings, such as SECONDS, from the environment, where make puts what stands on its command line.

prove: prepare build ## clients on a real broker, with injected faults: SECONDS=300, SEED=, FAULTS=a,b, KIND=a,b
	@$(WITH_ENV) $(RUN_LUA) tools/prove/main.lua seconds=$(SECONDS) seed=$(SEED) faults=$(FAULTS) kind=$(KIND)

# Runs the target in a chroot (tools/room), with the RabbitMQ of another Debian release. It takes root.
IN_ROOM = mkdir -p build/prove && tools/room -b build/prove $(or $(SUITE),sid) make $@ SUITE=host PROVE=$(CURDIR)/build/prove \
	$(foreach name,SECONDS SEED LEAST STORY KINDS AIMED CLUSTER_TICK CLUSTER_PARTITION,$(name)="$($(name))")
OTHER_SUITE := $(filter-out host,$(SUITE))

prove-fenced: ## fenced locks, while processes get SIGKILL and SIGSTOP: [SECONDS=60] [SEED=] [LEAST=locks] [SUITE=sid]
prove-fast: ## fast mutexes, with the same variables
prove-many: ## several slots at once, beside clients that take one, with the same variables
prove-fenced prove-fast prove-many: prepare $(if $(OTHER_SUITE),,build)
	@$(if $(OTHER_SUITE),$(IN_ROOM),$(WITH_ENV) KIND=$(@:prove-%=%) $(RUN_LUA) tools/prove/hammered.lua)

prove-cluster: ## 3 nodes partitioned, frozen, killed: [SUITE=sid|host] [SECONDS=] [SEED=] [STORY=words] [KINDS=]
prove-cluster: prepare $(if $(filter host,$(SUITE)),build)
	@$(if $(filter host,$(SUITE)),$(WITH_ENV) tools/prove/three-nodes with $(RUN_LUA) tools/prove/cluster.lua,$(IN_ROOM))

PORCUPINE := tools/prove/porcupine
build/prove/porcupine: $(wildcard $(PORCUPINE)/*) | $(READY)
	$(BUILDING)
	$(Q)cd $(PORCUPINE) && CGO_ENABLED=0 go build -buildvcs=false -o $(CURDIR)/$@ .

prove-porcupine: prepare build/prove/porcupine ## porcupine judges the histories of earlier runs: [HISTORIES=files]
	@build/prove/porcupine $(or $(HISTORIES),$$(find build/prove -name '*.history' -o -name '*.naive' | sort))

build/prove/million: tools/prove/million.c tools/fuzz/peer.c tools/fuzz/wire.c $(FUZZED) | $(READY)
	$(BUILDING)
	$(Q)$(CC) -O2 -g -std=c11 -Wall -Wextra -Wpedantic -D_GNU_SOURCE -Isrc -Itools/fuzz $$($(PKG_CONFIG) --cflags librabbitmq) \
	  -o $@ $^ $$($(PKG_CONFIG) --libs librabbitmq)

prove-memory: prepare build $(BENCH_MODULES) build/prove/million ## a million operations in constant memory; [OPERATIONS=50000] on a broker
	@build/prove/million
	@$(WITH_BENCH) spec/support/broker with $(RUN_LUA) tools/prove/memory.lua

# LuaJIT, the fastest, unless LUA names another one.
PROVE_LUA := $(if $(filter file,$(origin LUA)),luajit,$(LUA))

ifneq ($(LUA),$(PROVE_LUA))
prove-sim prove-breakages mutate:
	+@$(MAKE) --no-print-directory LUA=$(PROVE_LUA) $@
else
prove-sim: prepare build ## stories (simulated runs) against a model broker: [SECONDS=60|STORIES=n] [FROM=seed] [STORY=name] [SEED=number] [JOBS=cores]
	@$(WITH_ENV) JOBS=$(or $(JOBS),$$(nproc)) $(RUN_LUA) tools/prove/simulation.lua

prove-breakages: prepare build ## break the library on purpose; a story must catch it: [BREAKAGE=name] [SECONDS=60] [SEED=number]
	@$(WITH_ENV) LUA=$(LUA) SECONDS_EACH=$(SECONDS) tools/prove/breakages/run $(BREAKAGE)

mutate: prepare build build-for-nginx cli ## change the C code in small ways; a spec must notice: [N=300] [SEED=1] [JOBS=4] [IN=folder] [SPEC=files] [MUTANT=file:line:column:kind]
	@$(WITH_ENV) AMQP_URL= tools/mutate/run
endif
