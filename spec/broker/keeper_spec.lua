-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- While Lua computes, and calls nothing of this library that waits, a thread of the session keeps it alive.
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local soak = os.getenv "AMQPLOCKS_SOAK"

local function threads()
  local pipe = assert(io.popen "ls /proc/$PPID/task | wc -l")
  local count = pipe:read "n"
  pipe:close()
  return count
end

describe("a connection whose owner computes", function()
  local name, conn, other

  before_each(function()
    name = client.unique("keeper")
    conn = assert(amqplocks.connect(nil, { heartbeat = 1 }))
    assert(conn:admin(name):resize(1))
    other = scene.connect { heartbeat = 0 }
  end)

  after_each(function()
    conn:close()
    local last = assert(amqplocks.connect())
    last:admin(name):destroy()
    last:close()
    scene.clear()
  end)

  it("keeps its lock over many missed heartbeats, certain all the while", function()
    local lock = assert(conn:semaphore(name):try_acquire())
    local start, seconds, doubts = os.time(), soak and 300 or 5, 0
    while os.time() - start <= seconds do -- a broker drops a silent client after two to three heartbeats, of 1 s here
      if not lock:held() then doubts = doubts + 1 end
    end
    assert.equal(0, doubts)
    assert.is_true(other:locked(name .. "-1-B"))
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
    assert.is_false(other:exists(name .. "-1-B"))
  end)

  local operated_it = scene.operated and it or pending

  operated_it("learns of a loss without asking", function()
    local lock = assert(conn:semaphore(name):try_acquire())
    assert.is_true(lock:held())
    scene.ctl("close_all_connections", "--vhost", "/", "by the operator")
    until_true(function() return not lock:held() end)
    local held, message, code = lock:held()
    assert.is_false(held)
    assert.equal("lost", code)
    assert.truthy(message:find("by the operator", 1, true), message)
    other = scene.connect()
    assert.is_false(other:exists(name .. "-1-B"))
  end)

  it("has one thread from its first lock until it is closed", function()
    local before, fresh = threads(), assert(amqplocks.connect())
    assert.equal(before, threads())
    for _ = 1, 3 do assert(assert(fresh:semaphore(name):acquire { timeout = 5 }):release()) end
    assert.equal(before + 1, threads())
    fresh:close()
    assert.equal(before, threads())
  end)
end)
