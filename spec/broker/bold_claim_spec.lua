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
local function wins(one, times) one:run("for _ = 1, ... do assert(take(60) and lock:release()) end", times) end

stage.tidy()

for kind, busy in pairs(BUSY) do
  describe(("a lock (%s) that was free three times"):format(kind), function()
    operated_it("and is held now is waited for, and taken when that holder leaves or is killed", function()
      for _, leaves in ipairs{ line.leave, function(other, name)
        gate.until_rung(kind, name)
        other:kill()
      end } do
        local name = gate.name()
        local one = gate.process(kind, name)
        wins(one, 5)
        local other = gate.holder(kind, name)
        line.join(one)
        leaves(other, name)
        gate.served(one)
        assert.is_true(gate.held(kind, name))
        line.leave(one)
      end
    end)

    it("and whose connection is cut in mid-claim is unreachable, and soon another's", function()
      local name, proxy = gate.name(), proxies.start()
      local one = gate.process(kind, name, nil, proxy.url)
      wins(one, 5)
      proxy:cut_claiming()
      local got, _, code = one:run("return take(60)")
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

-- A reader's claim would delete that queue (reader.c).
it("a door that was open three times and whose name another queue has now is looked at by a reader", function()
  local name = gate.name()
  local rwlock = stage.connect():rwlock(name)
  for _ = 1, 5 do assert(assert(rwlock:try_read()):release()) end
  local queue = gate.queue("write", name)
  assert(client.shared():declare(queue, { durable = true }))
  stage.fails("squatted", rwlock:try_read())
  assert.is_true(client.shared():exists(queue))
  stage.delete(queue)
end)
