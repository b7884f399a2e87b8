-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A mutex, or the door of a readers–writer lock, that its object claims without a look, as the last claims of that
-- object were not contested. unit/locks/bold_claim_spec.lua shows that there is no look.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local proxies = require "spec.support.proxy"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

local BUSY = { mutex = 'busy: mutex "%s" is held', write = 'busy: another writer holds "%s", or waits for it' }
local AS_HOLDERS = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" }

-- Acquired and released so many times.
local function win(gated, times)
  for _ = 1, times do assert(stage.take(gated):release()) end
end

-- The same, by a process.
local function wins(one, times) one:run("for _ = 1, ... do assert(take(20) and lock:release()) end", times) end

-- A process to which the lock was free often enough.
local function bold(kind, name, url)
  local one = gate.process(kind, name, nil, url)
  wins(one, 5)
  return one
end

-- Nobody can look meanwhile.
-- Another process holds it, and then `leaves`: the waiter has it.
local function is_waited_for(kind, leaves)
  local name = gate.name()
  local one = bold(kind, name)
  local other = gate.holder(kind, name)
  line.join(one)
  leaves(other, name)
  gate.served(one)
  assert.is_true(gate.held(kind, name))
  line.leave(one)
  assert.is_false(gate.held(kind, name))
end

after_each(stage.clear)
teardown(stage.check)

for kind, busy in pairs(BUSY) do
  describe(("a lock (%s) that was free three times"):format(kind), function()
    it("and is held by another process now is busy, and stays that process's", function()
      local name = gate.name()
      local gated = gate.new(stage.connect(), kind, name)
      for _ = 1, 3 do
        win(gated, 24)
        local other = gate.holder(kind, name)
        assert.equal(busy:format(name), stage.fails("busy", gated:try_acquire()))
        assert.is_true(other:run("return lock:verify()"))
        line.leave(other)
      end
      win(gated, 1)
    end)

    it("and is held now is waited for in line, and taken when that holder leaves", function()
      is_waited_for(kind, line.leave)
    end)

    operated_it("and is held now is taken when that holder is killed", function()
      is_waited_for(kind, function(other, name)
        gate.until_rung(kind, name)
        other:kill()
      end)
    end)

    it("and whose connection is cut in mid-claim is unreachable, and soon another's", function()
      local name, proxy = gate.name(), proxies.start()
      local one = bold(kind, name, proxy.url)
      proxy:cut_claiming()
      local got, _, code = one:run("return take(20)")
      assert.same({ nil, "unreachable" }, { got, code })
      local other = gate.holder(kind, name)
      assert.is_true(other:run("return lock:verify()"))
      assert.equal(busy:format(name), select(2, one:run("return sem:try_acquire()")))
      line.leave(other)
      wins(one, 5)
    end)

    it("and whose name another queue has now is squatted", function()
      local name = gate.name()
      for _, arguments in ipairs{ {}, AS_HOLDERS } do
        local gated = gate.new(stage.connect(), kind, name)
        win(gated, 12)
        local queue, channel = gate.queue(kind, name), client.shared():channel()
        assert(channel:call{ method = "queue.declare", queue = queue, durable = true, arguments = arguments })
        stage.fails("squatted", gated:try_acquire())
        stage.delete(queue)
        channel:close()
      end
    end)
  end)
end

it("a mutex that was free three times and is held by this very connection is busy, and not declared again", function()
  local name, conn = gate.name(), stage.connect()
  local mutex = conn:mutex(name)
  win(mutex, 3)
  local lock = stage.take(mutex)
  stage.fails("busy", mutex:try_acquire())
  stage.fails("deadlock", mutex:acquire{ timeout = 20 })
  assert.is_true(lock:verify())
  assert.is_true(lock:release())
end)

describe("a readers–writer lock whose door was open three times", function()
  -- A reader's claim would delete that queue (reader.c).
  it("and whose name another queue has now is looked at by a reader: that queue stays", function()
    local name = gate.name()
    local rwlock = stage.connect():rwlock(name)
    for _ = 1, 5 do assert(assert(rwlock:try_read()):release()) end
    local queue = gate.queue("write", name)
    assert(client.shared():declare(queue, { durable = true }))
    stage.fails("squatted", rwlock:try_read())
    assert.is_true(client.shared():exists(queue))
    stage.delete(queue)
  end)
end)
