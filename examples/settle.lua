-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A job that takes two locks. It moves money between two accounts, each of which has a mutex, while nobody else touches
-- either. Two of these jobs run at once and name the accounts in opposite orders. conn:all acquires the mutexes in one
-- order for both, so they do not wait for each other.
--
--   settle.lua
--
-- The broker is AMQP_URL, or on localhost.

local amqplocks = require "amqplocks"
local cqueues = require "cqueues"

local TRANSFERS = 20
local accounts = { savings = 100, current = 100 } -- stands for rows of a store

local function transfer(from, to, amount)
  local left = accounts[from] - amount
  cqueues.sleep(0.001) -- a store takes its time: without the locks a transfer would be lost here
  accounts[from] = left
  accounts[to] = accounts[to] + amount
end

local function job(conn, from, to)
  local both = conn:all { conn:mutex("account-" .. from), conn:mutex("account-" .. to) }
  for _ = 1, TRANSFERS do
    assert(both:with({ timeout = 30 }, function(locks)
      assert(locks:held()) -- before each write, as always
      transfer(from, to, 1)
    end))
  end
end

local loop = cqueues.new()
for _, way in ipairs { { "savings", "current" }, { "current", "savings" } } do
  loop:wrap(function()
    local conn = assert(amqplocks.connect(nil, { driver = "cqueues" })) -- each job is a client of its own
    job(conn, way[1], way[2])
    conn:close()
  end)
end
assert(loop:loop())
print(("%d transfers, savings %d, current %d"):format(2 * TRANSFERS, accounts.savings, accounts.current))
