# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# The documents as HTML.

docs: prepare ## HTML of the documents and manual pages, with an index of all calls, in build/docs
	$(Q)rm -rf build/docs && mkdir -p build/docs
	$(Q)$(WITH_ENV) $(RUN_LUA) tools/docs/main.lua build/docs
	@echo "build/docs/index.html is written"
