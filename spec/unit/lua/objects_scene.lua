-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Connections over a broker that says nothing, and objects.
--
--     local objects = require "spec.unit.lua.objects_scene"
--     objects.connect(wait)      -- wait(operation, peer) is called where a call would wait
--     objects().Mutex            -- one object of each public class; a call that would wait raises "waits"
local Peer = require "spec.support.peer"
local connection = require "amqplocks.connection"
local lock = require "amqplocks.lock"
local locks = require "amqplocks.locks"
local losses = require "amqplocks.waiting.losses"
local reentrant = require "amqplocks.reentrant"
local testing = require "amqplocks.testing"

local scene = {}

function scene.connect(wait)
  local peer = Peer.open()
  local session = peer.session
  return assert(connection.open(session, {
    wait = function(operation) wait(operation, peer) end,
    news = function() return session:news() end,
    losses = losses.new(function() return session:alerts() end),
  })), peer
end

local function objects()
  local conn, peer = scene.connect(function() error("waits", 0) end)
  local one = lock.new(conn, (peer:acquire "a"))
  return {
    Connection = conn, Semaphore = conn:semaphore "a", Admin = conn:admin "a", Mutex = conn:mutex "a",
    FastMutex = conn:fast_mutex "a",
    RWLock = conn:rwlock "a", TokenSemaphore = conn:token_semaphore "a", Lock = one,
    Side = conn:rwlock("a"):reader(), All = conn:all{ conn:mutex "a" }, Locks = locks.new({ one }, { one }, { 1 }),
    World = testing.new(),
    Entry = reentrant.enter(conn:mutex "b", function() return one end),
  }
end

return setmetatable(scene, { __call = objects })
