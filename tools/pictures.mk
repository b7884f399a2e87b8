# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# The pictures in docs.

# $(call DRAW,name,program and its argument)
DRAW = $(WITH_ENV) $(RUN_LUA) $(2) >build/$(1).svg && cp build/$(1).svg docs/$(1).svg && echo "docs/$(1).svg is drawn"
REPORT ?= build/bench/report.txt

picture: prepare build ## draw docs/demo.svg from a run of the demo
	@echo "running the demo, which takes 20 seconds"
	@mkdir -p build/demo
	@$(WITH_ENV) spec/support/broker with $(RUN_LUA) examples/demo/demo.lua >build/demo/log.txt || \
	  { cat build/demo/log.txt >&2; exit 1; }
	@$(call DRAW,demo,tools/picture.lua build/demo/log.txt)

picture-rivals: ## draw docs/rivals.svg from a run of the bench beside other lock services; or from REPORT=file
	@$(if $(filter command%,$(origin REPORT)),,$(MAKE) --no-print-directory bench BENCH=tools/bench/rivals.lua)
	@mkdir -p build && $(call DRAW,rivals,tools/comparison.lua $(REPORT))

picture-dashboard: prepare build ## draw docs/dashboard.svg: what a real Prometheus answers about a run of examples/metrics
	@echo "running the service of examples/metrics, which takes a minute"
	@mkdir -p build/dashboard
	@$(WITH_ENV) AMQP_URL= spec/support/broker with $(RUN_LUA) tools/dashboard_run.lua >build/dashboard/answers.txt
	@$(call DRAW,dashboard,tools/dashboard.lua build/dashboard/answers.txt)
