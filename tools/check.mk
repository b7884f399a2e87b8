# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# What `make check` consists of, and what keeps lists and layout as it wants them.

ROCKSPECS := amqp-locks-scm-1.rockspec db-locks/db-locks-scm-1.rockspec
C_FILES := $(wildcard src/*.h src/*/*.[ch] src/*/*/*.[ch] examples/*/*.c tools/fuzz/*.[ch] tools/prove/*.c)
LUACHECKED := $(wildcard lua db-locks spec tools examples) .busted

check-includes:
	@echo "checking which files of src include which"
	$(Q)tools/check-includes

check-lua: prepare
	@echo "checking $(LUACHECKED) with luacheck"
	$(Q)luacheck --quiet --no-cache $(LUACHECKED)

check-format: prepare
	@echo "checking C files with clang-format"
	$(Q)clang-format --dry-run -Werror $(C_FILES)

# mandoc has no warning for a quotation that another one begins inside, as .Dq does that ends with its line.
check-man: prepare
	@echo "checking docs/man with mandoc and groff"
	$(Q)mandoc -T lint -W warning docs/man/*
	$(Q)for page in docs/man/*; do groff -ww -K utf8 -mandoc -T utf8 $$page 2>&1 >/dev/null | { ! grep .; } || exit; \
	  ! mandoc -T utf8 $$page | tr '\n' ' ' | grep -o '“[^”]*“[^”]*' || exit; done

check-warnings: prepare
	$(Q)for cc in gcc $$(command -v clang >/dev/null && echo clang); do $(MAKE) --no-print-directory -B build lib lib-lua cli replays CC=$$cc WERROR=1 || exit; done

# libFuzzer needs clang. Without clang this is skipped and all other checks still run.
check-fuzz: prepare
	@if command -v $(FUZZ_CC) >/dev/null; then $(MAKE) --no-print-directory fuzz SECONDS=30; \
	  else echo "there is no $(FUZZ_CC): fuzzing is SKIPPED"; fi

# emmylua_check reads the annotations of the Lua module as editors do. It is a program in Rust that takes minutes to
# build, so `make check` does without. spec/unit/lua/annotations_spec.lua compares them with the code, and needs nothing.
# .emmyrc.json leaves out what is no matter of annotations: private fields, modules of others, whether a value may be nil.
CHECKER_PLACE := build/annotations-checker

check-annotations: ## the types in the annotations of the Lua module, by emmylua_check if there is one
	@checker=$$(PATH="$(CURDIR)/$(CHECKER_PLACE)/bin:$$PATH" command -v emmylua_check) || { \
	  echo "there is no emmylua_check, nothing was checked: \`make annotations-checker\` builds it with cargo"; exit 0; }; \
	echo "checking the annotations of lua with $$checker"; "$$checker" --warnings-as-errors -c .emmyrc.json lua

annotations-checker:
	cargo install emmylua_check --version 0.25.1 --locked --root $(CHECKER_PLACE)

format: prepare ## clang-format C files in place
	@echo "formatting C files"
	$(Q)clang-format -i $(C_FILES)

rockspec: ## update the lists of files in the rockspecs
	@echo "writing $(ROCKSPECS)"
	$(Q)for file in $(ROCKSPECS); do now=$$(spec/support/rockspec $$file) && printf '%s\n' "$$now" >$$file || exit; done

check-rockspec:
	@echo "checking $(ROCKSPECS)"
	@for file in $(ROCKSPECS); do spec/support/rockspec $$file | diff -u $$file - || \
	  { echo "$$file does not list the files that exist: run make rockspec" >&2; exit 1; }; done
