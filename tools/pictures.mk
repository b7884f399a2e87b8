# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# The pictures in docs.

# $(call DRAW,name,program and its argument)
DRAW = $(WITH_ENV) $(RUN_LUA) $(2) >build/$(1).svg && cp build/$(1).svg docs/$(1).svg && echo "docs/$(1).svg is drawn"

picture: prepare build ## draw docs/demo.svg from a run of the demo
	@echo "running the demo, which takes 20 seconds"
	@mkdir -p build/demo
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua >build/demo/log.txt || \
	  { cat build/demo/log.txt >&2; exit 1; }
	@$(call DRAW,demo,tools/picture.lua build/demo/log.txt)

# The first of them has the other services.
RIVALS = build/bench/rivals.txt $(wildcard build/bench/rivals-*.txt)

picture-rivals: ## draw docs/rivals.svg, and fill README's table, from what bench-rivals measured: [RIVALS=files]
	@$(call DRAW,rivals,tools/comparison.lua svg $(RIVALS))
	@$(RUN_LUA) tools/comparison.lua table $(RIVALS) >build/README.md && cp build/README.md README.md && \
	  echo "README's table is filled"

picture-dashboard: prepare build ## draw docs/dashboard.svg: what a real Prometheus answers about a run of examples/metrics
	@echo "running the service of examples/metrics, which takes a minute"
	@mkdir -p build/dashboard
	@$(WITH_ENV) AMQP_URL= spec/support/broker with $(RUN_LUA) tools/dashboard_run.lua >build/dashboard/answers.txt
	@$(call DRAW,dashboard,tools/dashboard.lua build/dashboard/answers.txt)
