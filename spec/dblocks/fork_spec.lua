-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in the child of a fork.
local process = require "spec.support.process"
local store = require "spec.dblocks.support.stores.redis"

local server, cpath, parent

setup(function()
  server, cpath = assert(store.start()), process.c_module "fork"
end)

teardown(function()
  server:stop()
  process.remove_modules()
end)

before_each(function()
  parent = process.start()
  parent:run([[
    local cpath, port = ...
    package.cpath = cpath .. package.cpath
    local fork, redis = require "fork", require "spec.support.servers.redis"
    dblocks, made = require "dblocks", 0
    function connect()
      made = made + 1
      return redis.connect(port)
    end
    -- Returns true, or what was wrong in the child.
    function in_child(fn)
      local name = os.tmpname()
      local pid = fork.fork()
      if pid == 0 then
        local fine, problem = pcall(fn)
        local file = assert(io.open(name, "w"))
        file:write(fine and "fine" or tostring(problem))
        file:close()
        fork.exit(0)
      end
      fork.wait(pid)
      local file = assert(io.open(name))
      local text = file:read "*a"
      file:close()
      os.remove(name)
      return text == "fine" or text
    end
  ]], cpath, server.address)
end)

after_each(process.clear)

describe("the child of a fork", function()
  it("has connections and a name of its own, and leaves those of its parent alone", function()
    assert.is_true(parent:run [[
      local locks = dblocks.redis(connect)
      local lock = assert(locks:mutex("fork", 1):try_acquire())
      local results = in_child(function()
        assert(made == 1)
        local own = assert(locks:mutex("fork", 2):try_acquire())
        assert(made == 2, "a connection of the parent was used")
        local function pid(ticket) return ticket:match ":(%d+)%." end
        assert(pid(own.ticket) ~= pid(lock.ticket), "the ticket is named after the parent")
        assert(own.name == own.ticket:sub(1, -18))
        assert(lock:verify() and own:release())
        assert(made == 2)
        locks:close()
        collectgarbage()
      end)
      assert(lock:release() and made == 1)
      return results
    ]])
  end)

  it("does not close what its parent has opened", function()
    assert.is_true(parent:run [[
      local locks = dblocks.redis(connect)
      local lock = assert(locks:mutex("fork", 1):try_acquire())
      local results = in_child(function() locks:close() end)
      assert(lock:release() and made == 1)
      return results
    ]])
  end)

  it("cannot use the client that its parent was given", function()
    assert.is_true(parent:run [[
      local locks = dblocks.redis(connect())
      local lock = assert(locks:mutex("fork", 1):try_acquire())
      local results = in_child(function()
        for _ = 1, 2 do
          local held, message, code = lock:verify()
          assert(not held and code == "unreachable" and message:find "parent", message)
        end
      end)
      assert(lock:release())
      return results
    ]])
  end)
end)
