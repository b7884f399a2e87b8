# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Debian packages, the image, and releases.

SYMBOLS := debian/libamqplocks$(basename $(VERSION)).symbols

symbols: lib ## update the list of functions in debian/
	@echo "writing $(SYMBOLS)"
	$(Q)now=$$(tools/release/symbols $(LIB)/libamqplocks.so $(VERSION) $(SYMBOLS)) && printf '%s\n' "$$now" >$(SYMBOLS)

deb: prepare ## build the Debian packages of the last commit, in build/deb, and check them with lintian
	@tools/release/deb --sources build/deb
	@tools/release/deb build/deb

check-deb: ## build, install, use and purge the packages in clean chroots; as root; [DEB_SUITES="bookworm trixie"]
	@tools/release/check-deb $(or $(DEB_SUITES),bookworm trixie)

image: ## an OCI image of the static commands for musl, and of certificates, in build/image
	+@$(MAKE) --no-print-directory cli STATIC=1 LIBC=musl
	@tools/release/image $(VERSION) build/cli-musl-static-nocurl build/musl build/image/amqp-lock-$(VERSION).tar

# `top` needs libcurl, which static commands do without.
MUSL_SPECS := spec/musl $(filter-out %/cli_top_spec.lua,$(wildcard spec/broker/cli_*spec.lua))

check-musl: prepare ## the static commands for musl: their libraries from source, their specs, an empty root, the image
	+@$(MAKE) --no-print-directory deps FOR=musl
	+@$(MAKE) --no-print-directory image
	+@$(MAKE) --no-print-directory test STATIC=1 LIBC=musl SPEC="$(MUSL_SPECS)"

release: ## tarball, rockspec and tag of the last commit: VERSION=0.3.0 RELEASE_URL=https://... [TARBALL_URL=]
	@tools/release/release "$(if $(filter command%,$(origin VERSION)),$(VERSION))" "$(RELEASE_URL)" "$(TARBALL_URL)"
