# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# The other product of this repository: db-locks.

demo-db: prepare ## eight processes share a lock in a Redis of their own; one is killed, and an operator decides
	@$(WITH_ENV) $(RUN_LUA) examples/dblocks/demo.lua

test-db: prepare ## db-locks on real databases, or SPEC=path; CASSANDRA=0: without Cassandra
	@$(WITH_ENV) spec/support/suite $(or $(SPEC),spec/dblocks)

torture-db: prepare ## db-locks under SIGKILL, SIGSTOP and cut connections: STORE=redis [SECONDS=60] [SEED=]
	@$(WITH_ENV) $(RUN_LUA) tools/dblocks/torture.lua

figures-db: prepare ## what operations of db-locks cost on a database: STORE=redis [READERS=9] [TIMES=50]
	@$(WITH_ENV) $(RUN_LUA) tools/dblocks/figures.lua

break-db: prepare ## break db-locks on purpose; the torture must catch it: [BREAKAGE=name] [SECONDS=20]
	@$(WITH_ENV) SECONDS_EACH=$(SECONDS) tools/dblocks/breakages/run $(BREAKAGE)
