-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Programs that run without standard input, output and error. The numbers 0, 1 and 2 are then the lowest free
-- descriptors: without care the next socket gets one of them, and output of the program goes to the broker.
local process = require "spec.support.process"
local program = require "spec.support.program"
local stage = require "spec.support.stage"

local URL = os.getenv "AMQP_URL"
local tls_it = os.getenv "AMQPS_URL" and os.getenv "BROKER_TLS" and it or pending

stage.tidy(program.clear)
teardown(program.remove)

-- Runs Lua without the three, which has `conn` and `lock`, and prints; returns whether the lock was kept and released,
-- and what stands in place of the three then, one letter each: s(ocket), e(ventfd), d(irectory), ?
local function run(connect, environment)
  local script, told = program.place() .. "/script.lua", program.place() .. "/told"
  process.write(script, ([[
    package.path, package.cpath = %q, %q
    local amqplocks, CA = require "amqplocks", os.getenv "CA"
    local function write_everywhere()
      print "news of the day"
      io.stderr:write "news of the day\n"
      io.stdout:flush()
    end
    local function use(conn)
      local lock = assert(conn:semaphore(os.getenv "NAME"):try_acquire())
      write_everywhere()
      local kept, why = lock:verify()
      write_everywhere()
      local released = kept and lock:release()
      local pipe, all = io.popen("for fd in 0 1 2; do readlink /proc/$PPID/fd/$fd || echo none; done"), ""
      for line in pipe:lines() do
        all = all .. (line:match "^socket" and "s" or line:match "eventfd" and "e" or line == "/" and "d" or "?")
      end
      pipe:close()
      local file = assert(io.open(%q, "w"))
      file:write(tostring(kept), " ", why or "-", " ", tostring(released), " ", all)
      file:close()
      conn:close()
    end
  ]]):format(package.path, package.cpath, told) .. connect)
  local all = { NAME = stage.semaphore(1), AMQP_URL = URL, ASAN_OPTIONS = os.getenv "ASAN_OPTIONS" }
  for key, value in pairs(environment or {}) do all[key] = value end
  local status, output = program.run(all, "/bin/bash", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "bash",
    os.getenv "LUA" or "lua", script)
  local text = assert(process.contents(told), output)
  os.remove(told)
  assert.same({ 0, "" }, { status, output })
  return text
end

describe("a program without standard input, output and error", function()
  local NATIVE = [[
    local conn = assert(amqplocks.connect(os.getenv "AMQP_URL", { tls = CA and { ca = CA } }))
    assert(conn:pollfd())
    use(conn)]]

  it("keeps its lock when it prints", function() assert.equal("true - true ddd", run(NATIVE)) end)

  tls_it("keeps its lock when it prints, over TLS", function()
    assert.equal("true - true ddd", run(NATIVE, { AMQP_URL = os.getenv "AMQPS_URL",
      CA = os.getenv "BROKER_TLS" .. "/ca.pem" }))
  end)

  it("keeps its lock when it prints, in an event loop", function()
    assert.matches("^true %- true [^s]+$", run [[ -- what cqueues opens for itself before that may have their numbers
      local loop = require("cqueues").new()
      loop:wrap(function() use(assert(amqplocks.connect(os.getenv "AMQP_URL", { driver = "cqueues" }))) end)
      assert(loop:loop())
    ]])
  end)

  it("in C, since a moment ago, while it connects, keeps its lock", function()
    local stdio = program.build("spec/support/programs/stdio.c", "amqplocks")
    assert.equal(0, (program.run({ AMQP_URL = URL, LD_LIBRARY_PATH = program.LIB }, stdio, stage.semaphore(1))))
  end)
end)
