# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Debian packages and releases.

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
