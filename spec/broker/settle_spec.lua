-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- acquire { settle = seconds }: a mutex whose last lock did not end by a release is not had for a while.
-- support/testing_rows.lua has each kind of mutex.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local SECONDS = 60
local LONG = 600

stage.tidy(command.clear)

local function seal_of(name) return name .. "-mutex-seal" end

-- The seal is left behind for LONG unless the test deletes it.
local function sealed_name()
  local name = gate.name()
  stage.undo(function() stage.delete(seal_of(name)) end)
  return name
end

local function settles(name, options)
  local _, message, code = stage.connect():mutex(name, options):acquire{ settle = LONG, timeout = 0 }
  assert.equal("busy", code, message)
  assert.matches("settles for 600 s", message)
end

-- Nobody says when the seal goes.
local function is_free_without(name)
  stage.delete(seal_of(name))
  assert(stage.connect():mutex(name):acquire{ settle = LONG, timeout = SECONDS }:release())
  assert.is_false(client.shared():exists(seal_of(name)))
end

describe("a mutex that settles", function()
  it("does so when its holder was killed, or the one that let it settle, or its time was over", function()
    local name = sealed_name()
    local other = gate.process("mutex", name)
    other:run("lock = assert(sem:acquire{ settle = 600, timeout = 60 })")
    other:kill()
    gate.until_free("mutex", name)
    settles(name)
    settles(name, { probe = "passive" })
    local _, message, code = stage.connect():mutex(name):acquire{ settle = LONG, timeout = 0.1 }
    assert.equal("timeout", code)
    assert.matches("settles for 600 s", message)
    local waiter = gate.process("mutex", name)
    waiter:begin("lock = sem:acquire{ settle = 600, timeout = 60 }")
    gate.until_held("mutex", name)
    waiter:kill()
    gate.until_free("mutex", name)
    settles(name)
    is_free_without(name)
    local lock = assert(stage.connect():mutex(name):acquire{ settle = LONG, at_most = 0.1 })
    until_true(function() return not gate.held("mutex", name) end, SECONDS)
    settles(name)
    stage.fails("lost", lock:held())
    is_free_without(name)
  end)

  operated_it("does so when an operator deleted its queue; reconnect_spec has a restart of the broker", function()
    local name = sealed_name()
    local lock = assert(stage.connect():mutex(name):acquire{ settle = LONG })
    broker.suite:delete_queue(gate.queue("mutex", name))
    until_true(function() return not lock:held() end, SECONDS)
    settles(name)
    is_free_without(name)
  end)

  it("is left alone by clients that do not ask for that, and keeps no seal of a closed connection", function()
    local name, conn = sealed_name(), stage.connect()
    local lock = assert(conn:mutex(name):acquire{ settle = LONG })
    stage.fails("busy", stage.connect():mutex(name):try_acquire())
    assert(conn:close())
    stage.fails("not_held", lock:held())
    assert.is_false(client.shared():exists(seal_of(name)))
    local other = gate.process("mutex", name)
    other:run("lock = assert(sem:acquire{ settle = 600, timeout = 60 })")
    other:kill()
    local plain = assert(stage.connect():mutex(name):acquire{ timeout = SECONDS })
    assert(plain:release())
    is_free_without(name)
  end)

  it("is had at once after a release", function()
    local name = gate.name()
    local mutex = stage.connect():fast_mutex(name) -- its channel closes before the seal is gone
    for _ = 1, 20 do assert(assert(mutex:acquire{ settle = LONG, timeout = 0 }):release()) end
    stage.delete(name .. "-fastmutex")
  end)

  it("is retained with its seal", function()
    local name, conn = sealed_name(), stage.connect()
    local mutex = conn:mutex(name, { retain = LONG })
    for _ = 1, 2 do assert(assert(mutex:acquire{ settle = LONG, timeout = SECONDS }):release()) end
    assert.equal(1, conn:stats().retained)
    assert(stage.connect():mutex(name):acquire{ settle = LONG, timeout = SECONDS }:release())
  end)

  it("stays held when its seal was deleted", function()
    local name = sealed_name()
    local lock = assert(stage.connect():mutex(name):acquire{ settle = LONG })
    stage.delete(seal_of(name))
    assert.is_true(lock:verify() and lock:held())
    assert(lock:release())
  end)
end)

describe("amqp-lock --settle", function()
  operated_it("begins its command when that of the holder before has ended", function()
    local name = gate.name()
    local one = command.start({}, "--settle=4", "--grace=1", name, "-c",
      "trap '' TERM; echo job $$; while :; do sleep 0.1; done")
    local job = command.process(one:await("job (%d+)\n", SECONDS))
    local two = command.start({}, "-v", "--settle=4", name, "-c", ("kill -0 %d; echo status $?"):format(job.pid))
    two:await("waiting", SECONDS)
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.equal("1", two:await("status (%d)\n", SECONDS))
    assert.same({ "exit", 76 }, { one:wait() })
    assert.matches("did not end by a release", two:output())
  end)

  it("is for one mutex", function()
    for _, with in ipairs{ { "-S", "x" }, { "-r", "x" }, { "--all", "mutex:x" } } do
      local arguments = { "--settle=1", with[1], with[2], "true" }
      assert.matches("option %-%-settle is for", command.ends({}, 64, (table.unpack or unpack)(arguments)))
    end
  end)
end)
