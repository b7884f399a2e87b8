-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What amqplocks.h has for programs that do something else as well: waiting for a descriptor, a guard in a child,
-- notes.
local broker = require "spec.support.broker"
local program = require "spec.support.program"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local SECONDS = 60

local interface

setup(function() interface = program.build("spec/support/programs/interface.c", "amqplocks") end)
after_each(function()
  program.clear()
  stage.clear()
end)
teardown(program.remove)
teardown(stage.check)

local function start(...)
  return program.start({ AMQP_URL = os.getenv "AMQP_URL", LD_LIBRARY_PATH = program.LIB }, interface, ...)
end

local function all_so(what)
  local status, output = start(what, stage.mutex()):wait(SECONDS)
  assert.same({ 0, "all so\n" }, { status, output })
end

describe("a program in C", function()
  it("waits for a descriptor, a signal or a time as well, with an operation or without", function()
    all_so "descriptors"
  end)

  it("waits for what it has begun, in one call, and is told a failure once", function() all_so "blocking" end)

  operated_it("that only waits wakes when its lock is asked back, and when it is lost", function()
    local name = stage.mutex()
    local one = start("idle", name)
    one:await("held\n")
    assert.is_true(stage.connect():mutex(name):revoke())
    one:await("revoked\n")
    broker.suite:delete_queue(name .. "-mutex")
    local status, output = one:wait(SECONDS)
    assert.equal(0, status, output)
    local shown = name:gsub("%p", "%%%0")
    assert.matches("\nlost\n", output)
    assert.matches("\ninfo ok %[%] holder connection to [^\n]+ is open\n", output)
    assert.matches("\ninfo ok %[" .. shown .. '%] an administrator asks the holder of "' .. shown .. "%-mutex", output)
    assert.matches("\nwarning lost %[" .. shown .. '%] "' .. shown .. '%-mutex" was lost: ', output)
  end)

  it("leaves its lock to a guard, its child, which keeps it as long as it lives", function()
    local name = stage.mutex()
    local one = start("guard", name)
    local keeping, other = one:await("guard (%d+) other %d+\n"), one:await("guard %d+ other (%d+)\n")
    stage.undo(function() os.execute(("kill -s KILL %s %s 2>/dev/null"):format(keeping, other)) end)
    one:signal("KILL")
    assert.equal(128 + 9, (one:wait(SECONDS)))
    local mutex = stage.connect():mutex(name)
    for _ = 1, 100 do stage.fails("busy", mutex:try_acquire()) end
    assert.is_true(stage.connect():mutex(name):revoke()) -- the broker has a holder, who reads nothing
    stage.fails("busy", mutex:try_acquire())
    os.execute("kill -s KILL " .. keeping)
    until_true(function() return mutex:try_acquire() end, SECONDS)
  end)
end)
