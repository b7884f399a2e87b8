-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The kinds of locks by name: slot, permit, mutex, fast_mutex, quorum_mutex (from RabbitMQ 4.3 on), read, write.
-- Each has name(), a name for a new lock with one place; over(conn, name), an object with try_acquire, acquire and
-- `with`; and perhaps `kind`, as its locks tell it.
local assert = require "luassert"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"

local kinds = {}

kinds.all = {
  slot = {
    name = function() return stage.semaphore(1) end,
    over = function(conn, name) return conn:semaphore(name) end,
  },
  permit = {
    name = function()
      local name = scene.name()
      assert.equal(1, stage.connect():token_semaphore(name):resize(1))
      return name
    end,
    over = function(conn, name) return conn:token_semaphore(name) end,
  },
  fast_mutex = {
    name = function()
      local name = stage.name()
      stage.undo(function() stage.delete(name .. "-fastmutex") end)
      return name
    end,
    over = function(conn, name) return conn:fast_mutex(name) end,
  },
}
if client.shared():since(4, 3) then
  kinds.all.quorum_mutex = {
    kind = "fast_mutex",
    name = kinds.all.fast_mutex.name,
    over = function(conn, name) return conn:fast_mutex(name, { queue_type = "quorum" }) end,
  }
end
for _, kind in ipairs { "mutex", "read", "write" } do
  kinds.all[kind] = { name = gate.name, over = function(conn, name) return gate.new(conn, kind, name) end }
end

--- A lock that conflicts with a held lock of this kind, on a connection of its own outside of any event loop.
function kinds.rival(kind, name)
  return kinds.all[kind == "read" and "write" or kind].over(stage.connect(), name)
end

return kinds
