-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Programs that run without standard input, output and error. The numbers 0, 1 and 2 are then the lowest free
-- descriptors: without care the next socket gets one of them, and output of the program goes to the broker.
local program = require "spec.support.program"
local stage = require "spec.support.stage"

local URL = os.getenv "AMQP_URL"
local tls_it = os.getenv "AMQPS_URL" and os.getenv "BROKER_TLS" and it or pending

after_each(function()
  program.clear()
  stage.clear()
end)
teardown(program.remove)
teardown(stage.check)

-- Runs Lua without the three; gives what `report` was called with.
local function run(code, environment)
  local script, told = program.place() .. "/script.lua", program.place() .. "/told"
  local file = assert(io.open(script, "w"))
  file:write(([[
    package.path, package.cpath = %q, %q
    local function report(...)
      local file = assert(io.open(%q, "w"))
      file:write(table.concat({ ... }, " "))
      file:close()
    end
    -- What stands in place of standard input, output and error, one letter each: s(ocket), e(ventfd), d(irectory), ?
    local function standard()
      local pipe, all = io.popen("for fd in 0 1 2; do readlink /proc/$PPID/fd/$fd || echo none; done"), ""
      for line in pipe:lines() do
        all = all .. (line:match "^socket" and "s" or line:match "eventfd" and "e" or line == "/" and "d" or "?")
      end
      pipe:close()
      return all
    end
    local function write_everywhere()
      print "news of the day"
      io.stderr:write "news of the day\n"
      io.stdout:flush()
    end
  ]]):format(package.path, package.cpath, told), code)
  file:close()
  local all = { NAME = stage.semaphore(1), AMQP_URL = URL, ASAN_OPTIONS = os.getenv "ASAN_OPTIONS" }
  for key, value in pairs(environment or {}) do all[key] = value end
  local status, output = program.run(all, "/bin/bash", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "bash",
    os.getenv "LUA" or "lua", script)
  local result = io.open(told)
  assert.is_truthy(result, output)
  local text = result:read "*a"
  result:close()
  os.remove(told)
  assert.same({ 0, "" }, { status, output })
  return text
end

describe("a program without standard input, output and error", function()
  local HOLD = [[
    local amqplocks, CA = require "amqplocks", os.getenv "CA"
    local conn = assert(amqplocks.connect(os.getenv "AMQP_URL", { tls = CA and { ca = CA } }))
    local lock = assert(conn:semaphore(os.getenv "NAME"):try_acquire())
    assert(conn:pollfd())
    write_everywhere()
    local kept, why = lock:verify()
    write_everywhere()
    local released = kept and lock:release()
    report(tostring(kept), why or "-", tostring(released), standard())
  ]]

  it("keeps its lock when it prints", function() assert.equal("true - true ddd", run(HOLD)) end)

  tls_it("keeps its lock when it prints, over TLS", function()
    assert.equal("true - true ddd", run(HOLD, { AMQP_URL = os.getenv "AMQPS_URL",
      CA = os.getenv "BROKER_TLS" .. "/ca.pem" }))
  end)

  -- What cqueues opens for itself before that may have their numbers.
  it("keeps its lock when it prints, in an event loop", function()
    local told = run([[
      local cqueues = require "cqueues"
      local loop = cqueues.new()
      loop:wrap(function()
        local conn = assert(require("amqplocks").connect(os.getenv "AMQP_URL", { driver = "cqueues" }))
        local lock = assert(conn:semaphore(os.getenv "NAME"):try_acquire())
        write_everywhere()
        local kept, why = lock:verify()
        local released = kept and lock:release()
        report(tostring(kept), why or "-", tostring(released), (standard():gsub("[^s]", "-")))
        conn:close()
      end)
      assert(loop:loop())
    ]])
    assert.equal("true - true ---", told)
  end)

  for when, how in pairs{ before = "from the beginning", meanwhile = "since a moment ago, while it connects" } do
    it("in C, " .. how .. ", keeps its lock", function()
      local stdio = program.build("spec/support/programs/stdio.c", "amqplocks")
      assert.equal(0, (program.run({ AMQP_URL = URL, LD_LIBRARY_PATH = program.LIB }, stdio, when, stage.semaphore(1))))
    end)
  end
end)
