-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Clients that die while their declare is on its way. Before RabbitMQ 4.3 the queue of such a client removes the queue
-- that the next client has declared under its name; only the holder of that queue still has it. The bolt, a second
-- queue with an exclusive consumer, still excludes others.

local client = require "spec.support.client"
local gate = require "spec.support.gate"
local socket = require "socket"
local stage = require "spec.support.stage"

stage.tidy()

local ROUNDS, SECONDS = os.getenv "AMQPLOCKS_SOAK" and 60 or 30, 0.01
local HELD = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" }

-- What a lock of each kind is called, its object, and the queue that whoever holds it has.
local KINDS = {
  slot = { name = function() return stage.semaphore(1) end, queue = function(name) return stage.holder(name, 1) end,
    new = function(conn, name) return conn:semaphore(name) end },
}
for _, kind in ipairs{ "mutex", "write", "read" } do
  KINDS[kind] = { name = gate.name, queue = function(name) return gate.queue(kind, name) end,
    new = function(conn, name) return gate.new(conn, kind, name) end }
end

-- Claims a queue, as software without this library may, and is gone before the broker has seen that.
local function die_claiming(queue)
  local one = client.connect()
  local channel = one:channel()
  channel:send{ method = "queue.declare", queue = queue, exclusive = true, auto_delete = true, arguments = HELD }
  channel:send{ method = "basic.consume", queue = queue, no_ack = true }
  one:flush()
  one:abort()
end

-- Takes what may still be held for a moment. RabbitMQ may close the connection as it comes upon what the dead one left.
local function take(kind, name, conn)
  local lock, message, code
  local deadline = socket.gettime() + 60
  repeat
    lock, message, code = KINDS[kind].new(conn, name):try_acquire()
    if code == "unreachable" then conn = stage.connect() end
  until lock or socket.gettime() > deadline
  return assert(lock, message), conn
end

-- Whether nobody got what is held, though they tried for some milliseconds.
local function is_alone(lock, rivals)
  local deadline = socket.gettime() + SECONDS
  repeat
    for _, rival in ipairs(rivals) do
      local second = rival:try_acquire()
      if second and lock:held() then return false end
      if second then second:release() end
    end
  until socket.gettime() > deadline
  return true
end

describe("a client that dies while its claim is on its way", function()
  for kind, rivals in pairs{ slot = { "slot" }, mutex = { "mutex" }, write = { "write", "read" } } do
    it("does not open what the next one holds: " .. kind, function()
      local conn, other, together = stage.connect(), stage.connect(), 0
      for _ = 1, ROUNDS do
        local name, others = KINDS[kind].name(), {}
        local lock
        for i, rival in ipairs(rivals) do others[i] = KINDS[rival].new(other, name) end
        die_claiming(KINDS[kind].queue(name))
        lock, conn = take(kind, name, conn)
        if not is_alone(lock, others) then together = together + 1 end
        lock:release()
      end
      assert.equal(0, together)
    end)
  end
end)
