# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Targets for libFuzzer. The same targets without libFuzzer replay the kept corpus, also where there is no clang; the
# specs run these.

# The core and the bytes transport: all the sources of a session without sockets.
FUZZED := $(filter src/core/% $(addprefix src/transport/,bytes.c frames.c headers.c input.c output.c),$(C_SOURCES))

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

build/fuzz/objects/%.o: src/%.c Makefile tools/fuzz.mk | $(READY)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) $(FUZZ_COVERAGE) $$($(PKG_CONFIG) --cflags librabbitmq) -MMD -MP -c -o $@ $<

build/fuzz/objects/fuzz/%.o: tools/fuzz/%.c Makefile tools/fuzz.mk | $(READY)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) $$($(PKG_CONFIG) --cflags librabbitmq) -MMD -MP -c -o $@ $<

# These files play the broker, and take most of the time. They are not under test: no sanitizers.
$(FUZZ_HELPERS): FUZZ_CFLAGS := -O2 -g -std=c11 -Wall -Wextra -D_GNU_SOURCE

build/fuzz/session: build/fuzz/objects/fuzz/mutate.o

$(FUZZ_TARGETS:%=build/fuzz/%): build/fuzz/%: build/fuzz/objects/fuzz/%.o $(FUZZ_HELPERS) $(FUZZ_OBJECTS)
	$(BUILDING)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer -o $@ $^ $$($(PKG_CONFIG) --libs librabbitmq)

-include $(wildcard build/fuzz/objects/*/*.d build/fuzz/objects/*/*/*.d)

$(REPLAYS): $(BUILD)/fuzz/replay-%: tools/fuzz/replay.c tools/fuzz/%.c tools/fuzz/peer.c tools/fuzz/wire.c \
		$(FUZZED:src/%.c=$(C_BUILD)/%.o) tools/fuzz/peer.h tools/fuzz/wire.h
	$(BUILDING)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$($(PKG_CONFIG) --cflags librabbitmq) -o $@ $(filter %.c %.o,$^) $(SANITIZER_LIBS) \
	  $$($(PKG_CONFIG) --libs librabbitmq)

replays: $(REPLAYS)

fuzz: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## coverage-guided fuzzing: SECONDS=3600 [TARGET=session|url]
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do LUA=$(LUA) tools/fuzz/run fuzz $$target $(or $(SECONDS),3600) || exit; done

fuzz-show: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## replay one input and print what happens: TARGET=session|url INPUT=file
	@tools/fuzz/run show $(TARGET) $(INPUT)

fuzz-keep: prepare $(FUZZ_TARGETS:%=build/fuzz/%) ## reduce the corpus to the smallest one with the same coverage, in tools/fuzz/corpus
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do LUA=$(LUA) tools/fuzz/run keep $$target || exit; done
