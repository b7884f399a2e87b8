-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Permits of quorum token semaphores carry a fencing token: see spec/broker/facts/permit_numbers_spec.lua for what the
-- broker counts.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local movers = require "spec.support.movers"
local process = require "spec.support.process"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy()

local QUORUM, FENCED = { queue_type = "quorum" }, { queue_type = "quorum", fenced = true }

local function tokens(name, options, conn) return (conn or stage.connect()):token_semaphore(name, options or FENCED) end

-- A quorum semaphore of so many permits. Its name.
local function semaphore(permits)
  local name = scene.name()
  assert.equal(permits, tokens(name, QUORUM):create(permits))
  return name
end

-- A quorum queue of other software, with this message. Its name.
local function foreign(properties)
  local name, raw = scene.name(), stage.client()
  assert(raw:declare(scene.permits(name), { durable = true, arguments = { ["x-queue-type"] = "quorum" } }))
  scene.publish(raw, scene.permits(name), properties)
  return name
end

local function take(from) return stage.take(from, { timeout = 60 }) end

-- The number is larger than the last. Returns it.
local function grows(number, last)
  assert.is_true(number > last and number < 2 ^ 53, ("%s after %s"):format(number, last))
  return number
end

-- Takes a permit on a connection of its own, and gives it back. Its number is larger than the last. Returns it, and the
-- permit's id.
local function next_number(name, last)
  local conn = stage.connect()
  local lock = take(tokens(name, FENCED, conn))
  grows(lock.fence, last)
  assert(lock:release())
  conn:close()
  return lock.fence, lock.permit
end

local function until_ready(name, count)
  until_true(function ()
    local ready = client.shared():message_count(scene.permits(name))
    return ready == count, ready .. " are ready"
  end)
end

describe("the fencing token of a permit", function ()
  it("is larger after a holder was killed, and after a permit went back with its channel, or from an administrator",
    function ()
      local name, conn, last = semaphore(1), stage.connect(), 0
      assert(conn:mutex(stage.mutex()):try_acquire())
      local beside = tokens(name, FENCED, conn) -- gives back with the channel
      for _ = 1, 3 do
        local holder = process.start()
        last = grows(holder:run([[
          lock = assert(require("amqplocks").connect():token_semaphore((...), { queue_type = "quorum" }):acquire())
          return lock.fence
        ]], name), last)
        holder:kill()
        local lock = take(beside)
        last = grows(lock.fence, last)
        assert(lock:verify() and lock:release())
        last = next_number(name, last)
      end
      local _, id = next_number(name, last)
      assert.equal(1, tokens(name):repair())
      local _, same = next_number(name, last + 2) -- the repair was a holder, too
      assert.equal(id, same)
    end)

  for way, moves in pairs(movers) do
    local moved_it = way == "retry" and operated_it or it
    moved_it("is never smaller where one was seen, nor after repair, though the permit was published again: " .. way,
      function ()
      local name, conn, last, id = semaphore(2), stage.connect(), 0, nil
      assert.equal(1, tokens(name):remove(1))
      local seen = tokens(name, FENCED, conn)
      for _ = 1, 2 do
        for _ = 1, 3 do last, id = next_number(name, last) end
        local lock = take(seen)
        last = grows(lock.fence, last)
        assert(lock:release())
        until_ready(name, 1)
        moves(scene.permits(name))
        assert.matches("published again.*repair", stage.fails("conflict", seen:acquire{ timeout = 60 }))
        until_ready(name, 1)
        assert.equal(1, tokens(name):repair())
        local _, same = next_number(name, last)
        assert.equal(id, same)
        lock = take(seen)
        last = grows(lock.fence, last)
        assert(lock:release())
      end
    end)
  end

  it("is larger, with another id, of a permit that was lost, made again with the semaphore, or added", function ()
    local name = semaphore(1)
    local last, id = next_number(name, 0)
    for _, renew in ipairs{ function ()
      scene.taker(name):served():acknowledge()
      assert.equal(1, tokens(name, {}):repair{ wait = 60 }) -- not told that the queue is a quorum queue
    end, function ()
      assert(tokens(name):destroy())
      assert.equal(1, tokens(name):create(1))
    end } do
      renew()
      local number, other = next_number(name, last)
      assert.are_not.equal(id, other)
      last, id = number, other
    end
    local ids = {}
    assert.equal(2, tokens(name, {}):add(1)) -- not told that the queue is a quorum queue
    for _ = 1, 2 do ids[take(tokens(name)).permit] = true end
    assert.is_true(next(ids) ~= nil and next(ids, (next(ids))) ~= nil)
  end)
end)

describe("a permit without a fencing token", function ()
  it("is held as ever, and refused where a token is required: conflict, and it is free again", function ()
    local name = foreign{ delivery_mode = 2, message_id = ("f"):rep(16),
      headers = { ["x-amqplocks-base"] = 1, ["x-acquired-count"] = 5 } } -- which has headers of ours
    local lock = take(tokens(name, QUORUM))
    assert.same({ "permit" }, { lock.kind, lock.fence, lock.permit })
    assert(lock:release())
    local fenced = tokens(name)
    for _, options in ipairs{ { timeout = 0 }, { timeout = 60 } } do
      until_ready(name, 1)
      assert.matches("has no number", stage.fails("conflict", fenced:acquire(options)))
    end
    until_ready(name, 1)
    scene.until_consumers(client.shared(), name, 0)
  end)

  it("gets one by the repair of a quorum semaphore, or by resize to none and back", function ()
    local name, raw = semaphore(2), client.shared()
    assert(raw:channel():call{ method = "queue.purge", queue = scene.permits(name) })
    for i = 1, 2 do
      scene.publish(raw, scene.permits(name), { type = "amqplocks.permit", message_id = ("%016x"):format(i),
        delivery_mode = 2 })
    end
    local admin, lock = tokens(name), take(tokens(name, QUORUM))
    assert.is_nil(lock.fence)
    assert(lock:release())
    assert.equal(2, tokens(name, {}):repair()) -- not told that the queue is a quorum queue
    stage.fails("conflict", tokens(name):acquire{ timeout = 60 })
    until_ready(name, 2)
    assert.equal(2, admin:repair())
    local one, other = take(tokens(name)), take(tokens(name))
    assert.is_true(one.fence > 0 and other.fence > 0)
    assert(one:release() and other:release())
    until_ready(name, 2)
    assert.equal(0, admin:resize(0))
    assert.equal(2, admin:resize(2))
    for _ = 1, 2 do assert.is_true(take(tokens(name)).fence > 0) end
  end)
end)
