-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What stands in more than one place because of the packages: the version, the functions of the C library, their
-- manual page. Further: the manual pages have no mistakes of syntax.
local header = require "spec.support.header"
local process = require "spec.support.process"

local VERSION = header.version()
local SERIES = VERSION:match "^%d+%.%d+"

local function read(path) return assert(process.contents(path)) end

-- Returns the matches of a pattern in a text, sorted.
local function all(text, pattern)
  local found = {}
  for match in text:gmatch(pattern) do table.insert(found, match) end
  table.sort(found)
  return found
end

it("the functions of amqplocks.h are all in the symbols file (make symbols writes it) and in amqplocks(3)", function()
  local functions = header.functions()
  assert.same(functions, all(read("debian/libamqplocks" .. SERIES .. ".symbols"), "\n (al_[%w_]+)@Base %d"))
  assert.same(functions, all(read "docs/man/amqplocks.3", "\n%.It Fn (al_[%w_]+)\n%w"))
end)

it("the version of amqplocks.h is that of CHANGELOG.md and of the Debian packages, one with its name", function()
  local version, date = read "CHANGELOG.md":match "\n## (%d+%.%d+%.%d+), ([^\n]+)\n"
  assert.equal(VERSION, version)
  assert.is_truthy(date == "unreleased" or date:match "^%d%d%d%d%-%d%d%-%d%d$", date)
  assert.equal(VERSION, read "debian/changelog":match "^amqp%-locks %((%d+%.%d+%.%d+)%-%d+%) ")
  local packages = all(read "debian/control", "\nPackage: (%S+)")
  assert.same({ "amqp-lock", "libamqplocks-dev", "libamqplocks" .. SERIES, "lua-amqplocks" }, packages)
  assert.equal(("libamqplocks.so.%s libamqplocks%s "):format(SERIES, SERIES),
    read("debian/libamqplocks" .. SERIES .. ".symbols"):match "^%S+ %S+ ")
end)

it("the manual pages pass make check-man", function()
  process.shell("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "-u", "LUA", "make", "-s", "check-man")
end)
