-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The queues are the interface: software that shares only docs/specification.md with this library (pika, in
-- spec/support/foreign.py) locks and administers beside it.
local client = require "spec.support.client"
local python = require "spec.support.python"
local scene = require "spec.broker.admin_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local slot, holder, names, failed = scene.slot, scene.holder, scene.names, stage.fails

-- The foreign client: foreign("declare", "q", "durable") gives its answer.
local foreign = {}
foreign.__index = foreign

function foreign:tell(...)
  self.input:write(table.concat({ ... }, " "), "\n")
  self.input:flush()
end

function foreign:answer() return assert(self.output:read("*l"), "the foreign client has ended") end

function foreign:__call(...)
  self:tell(...)
  return self:answer()
end

function foreign:kill()
  os.execute("kill -KILL " .. self.pid)
  self:close()
end

function foreign:close()
  if io.type(self.input) == "closed file" then return end
  self.input:close()
  self.output:close()
end

local function new_foreign()
  local fifo = os.tmpname()
  assert(os.execute(("rm %s && mkfifo %s"):format(fifo, fifo)))
  local output = assert(io.popen(([[
    exec <%s
    echo $$
    exec %s spec/support/foreign.py
  ]]):format(fifo, python.with_pika())))
  local self = setmetatable({ input = assert(io.open(fifo, "w")), output = output }, foreign)
  os.remove(fifo)
  self.pid = assert(output:read("*l"))
  stage.undo(function () self:close() end)
  return self
end

describe("beside a foreign client", function ()
  local name, conn, admin, raw, their

  before_each(function ()
    name, raw = scene.begin()
    stage.undo(function () -- if it is still there
      for _, queue in ipairs{ holder(1), name .. ".semaphore" } do client.shared():delete(queue) end
    end)
    conn = stage.connect()
    admin = conn:admin(name)
    their = new_foreign()
  end)
  stage.tidy()

  it("that holds a slot, a client takes the next, and the first when it is free, or its holder killed", function ()
    assert.equal(3, admin:create(3))
    assert.equal("ok", their("declare", holder(1), "exclusive"))
    local semaphore = conn:semaphore(name)
    local second = assert(semaphore:try_acquire())
    assert.equal(2, second.slot)
    assert.equal("ok", their("delete", holder(1)))
    local first = assert(semaphore:try_acquire())
    assert.equal(1, first.slot)
    assert.equal("405", their("declare", holder(1), "exclusive"):sub(1, 3))
    assert(first:release())
    assert.equal("ok", their("declare", holder(1), "exclusive"))
    assert.equal("ok", their("declare", holder(3), "exclusive"))
    failed("busy", semaphore:try_acquire())
    their:kill()
    local third = assert(semaphore:acquire{ timeout = 60 })
    assert.is_true(raw:locked(holder(third.slot)))
    assert(third:release() and second:release())
  end)

  it("that takes a message of a queue of its own for a permit, all stand in one line", function ()
    local queue, semaphore = name .. ".semaphore", conn:token_semaphore(name)
    assert.equal("ok", their("declare", queue, "durable"))
    assert.equal("present", their("publish", queue))
    for _, how in ipairs{ "reject", "nack" } do
      assert.equal("taken", their("take", queue))
      failed("busy", semaphore:try_acquire())
      assert.equal("ok", their("give", how))
      local lock = assert(semaphore:acquire{ timeout = 60 })
      their:tell("take", queue)
      until_true(function ()
        local channel = raw:channel()
        local found = assert(channel:call{ method = "queue.declare", queue = queue, passive = true })
        channel:close()
        return found.consumer_count == 2
      end)
      assert(lock:release())
      assert.equal("taken", their:answer())
      failed("busy", semaphore:try_acquire())
      assert.equal("ok", their("give", how))
    end
    assert.equal("taken", their("take", queue))
    their:kill()
    assert(assert(semaphore:acquire{ timeout = 60 }):release())
  end)

  it("that made the slots, plain and durable, they are counted, taken and removed, and nothing piles up", function ()
    for i = 1, 3 do assert.equal("ok", their("declare", slot(i), "durable")) end
    assert.equal(3, admin:slots())
    local semaphore = conn:semaphore(name)
    for _ = 1, 10 do
      local lock = assert(semaphore:try_acquire())
      assert.equal(1, lock.slot)
      assert.is_true(lock:verify())
      assert.equal("present", their("publish", holder(1)))
      assert(lock:release())
      assert.equal(3, #admin:status())
    end
    for i = 1, 3 do
      until_true(function () return their("count", slot(i)) == "0", "messages in " .. slot(i) end)
    end
    assert.equal(4, admin:add(1))
    assert.equal("present", their("publish", slot(4)))
    assert.equal(2, admin:remove(2))
    assert.equal("absent", their("publish", slot(3)))
    assert.equal("present", their("publish", slot(2)))
    assert.is_true(admin:destroy())
    assert.equal("absent", their("publish", slot(1)))
  end)

  it("that put a plain queue in a holder's place, a client is told which, or takes another slot", function ()
    assert.equal("ok", their("declare", holder(1)))
    assert.equal(1, admin:create(1))
    names(failed("squatted", conn:semaphore(name):try_acquire()), holder(1))
    names(failed("squatted", conn:semaphore(name):acquire{ timeout = 60 }), holder(1))
    local semaphore = conn:semaphore(name) -- an object asks once a minute
    assert.equal("ok", their("declare", holder(1), "passive"))  -- and has not touched it
    assert.equal(2, admin:add(1))
    local lock = assert(semaphore:try_acquire())
    assert.equal(2, lock.slot)
    assert.equal("ok", their("delete", holder(1)))
    local first = assert(semaphore:try_acquire())
    assert.equal(1, first.slot)
    assert(lock:release() and first:release())
  end)
end)
