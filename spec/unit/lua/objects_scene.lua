-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One object of each public class, over a broker that says nothing. A call that would wait raises "waits".
local Peer = require "spec.support.peer"
local connection = require "amqplocks.connection"
local lock = require "amqplocks.lock"
local locks = require "amqplocks.locks"
local losses = require "amqplocks.waiting.losses"
local reentrant = require "amqplocks.reentrant"
local testing = require "amqplocks.testing"

return function()
  local peer = Peer.open "whole"
  local session = peer.session
  local conn = assert(connection.open(session, {
    wait = function() error("waits", 0) end,
    news = function() return session:news() end,
    losses = losses.new(function() return session:alerts() end),
  }))
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
