-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in the child of a fork.
local process = require "spec.support.process"
local store = require "spec.dblocks.support.stores.redis"

local server, cpath

setup(function() server, cpath = assert(store.start()), process.c_module "fork" end)

teardown(function()
  process.clear()
  server:stop()
  process.remove_modules()
end)

-- Runs this in a process: a parent that has a lock, and what its child does and asserts.
local function assert_child(client, act)
  assert.is_true(process.start():run(([[
    local cpath, port = ...
    package.cpath = cpath .. package.cpath
    local fork, redis, made = require "fork", require "spec.support.servers.redis", 0
    local function connect()
      made = made + 1
      return redis.connect(port)
    end
    local locks = require("dblocks").redis(%s)
    local lock = assert(locks:mutex("fork", 1):try_acquire())
    local pid = fork.fork()
    if pid == 0 then
      local fine, problem = pcall(function() %s end)
      if not fine then io.stderr:write(tostring(problem), "\n") end
      fork.exit(fine and 0 or 1)
    end
    local status = fork.wait(pid)
    return lock:release() and made == 1 and status == 0
  ]]):format(client, act), cpath, server.address))
end

describe("the child of a fork", function()
  it("has connections and a name of its own, and leaves those of its parent alone", function()
    assert_child("connect", [[
      local own = assert(locks:mutex("fork", 2):try_acquire())
      assert(made == 2, "a connection of the parent was used")
      local function pid(ticket) return ticket:match ":(%d+)%." end
      assert(pid(own.ticket) ~= pid(lock.ticket), "the ticket is named after the parent")
      assert(own.name == own.ticket:sub(1, -18))
      assert(lock:verify() and own:release())
      assert(made == 2)
      locks:close()
      collectgarbage()
    ]])
    assert_child("connect", "locks:close()")
  end)

  it("cannot use the client that its parent was given", function()
    assert_child("connect()", [[
      for _ = 1, 2 do
        local held, message, code = lock:verify()
        assert(not held and code == "unreachable" and message:find "parent", message)
      end
    ]])
  end)
end)
