-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex that its object claims without a look, as the last claims of that object were not contested. The prober,
-- which looks, is connection 2 of the proxy: while its requests are held, only a claim without a look ends.
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local proxies = require "spec.support.proxy"
local stage = require "spec.support.stage"

-- Acquired and released so many times.
local function win(mutex, times)
  for _ = 1, times do assert(stage.take(mutex):release()) end
end

-- Nobody can look meanwhile.
local function blindly(proxy, fn)
  proxy:switch("up", "hold", 2)
  fn()
  proxy:switch("up", "pass", 2)
end

local function claims_blindly(proxy, mutex)
  blindly(proxy, function() assert(stage.take(mutex, { timeout = 20 }):release()) end)
end

local function looks(proxy, mutex)
  blindly(proxy, function() stage.fails("timeout", mutex:acquire{ timeout = 0.1 }) end)
end

after_each(stage.clear)
teardown(stage.check)

describe("a mutex that was free three times", function()
  it("is claimed without a look by this object, and not by another one", function()
    local name, proxy = gate.name(), proxies.start()
    local conn = stage.connect(proxy.url)
    local mutex = conn:mutex(name)
    win(mutex, 2)
    looks(proxy, mutex)
    win(mutex, 1)
    claims_blindly(proxy, mutex)
    looks(proxy, conn:mutex(name))
    claims_blindly(proxy, mutex)
  end)

  it("and is held by another process now is busy, and stays that process's", function()
    local name = gate.name()
    local mutex = stage.connect():mutex(name)
    for _ = 1, 3 do
      win(mutex, 24)
      local other = gate.holder("mutex", name)
      assert.equal(('busy: mutex "%s" is held'):format(name), stage.fails("busy", mutex:try_acquire()))
      assert.is_true(other:run("return lock:verify()"))
      line.leave(other)
    end
    win(mutex, 1)
  end)

  it("and is held now is waited for in line, and taken when that holder leaves", function()
    local name = gate.name()
    local one = gate.process("mutex", name)
    one:run("for _ = 1, 5 do assert(take(20) and lock:release()) end")
    local other = gate.holder("mutex", name)
    line.join(one)
    line.leave(other)
    gate.served(one)
    assert.is_true(gate.held("mutex", name))
    line.leave(one)
    assert.is_false(gate.held("mutex", name))
  end)

  it("and is held now is taken when that holder is killed", function()
    local name = gate.name()
    local one = gate.process("mutex", name)
    one:run("for _ = 1, 5 do assert(take(20) and lock:release()) end")
    local other = gate.holder("mutex", name)
    line.join(one)
    other:kill()
    gate.served(one)
  end)

  it("and whose name another queue has now is squatted", function()
    local name = gate.name()
    local mutex = stage.connect():mutex(name)
    local as_holders = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" }
    for _, arguments in ipairs{ {}, as_holders } do
      win(mutex, 12)
      local channel = client.shared():channel()
      assert(channel:call{ method = "queue.declare", queue = gate.queue("mutex", name), durable = true,
        arguments = arguments })
      stage.fails("squatted", mutex:try_acquire())
      stage.delete(gate.queue("mutex", name))
      channel:close()
      mutex = stage.connect():mutex(name)
    end
  end)

  it("and is held by this very connection is busy, and not declared again", function()
    local name, conn = gate.name(), stage.connect()
    local mutex = conn:mutex(name)
    win(mutex, 3)
    local lock = stage.take(mutex)
    stage.fails("busy", mutex:try_acquire())
    stage.fails("deadlock", mutex:acquire{ timeout = 20 })
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
  end)
end)
