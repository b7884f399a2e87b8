-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The short form of `make prove`: some seconds of each kind of lock, with the faults that take effect quickly. See
-- tools/prove/real.lua, and docs/proving.md for the long form.
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local real = require "tools.prove.real"
local stage = require "spec.support.stage"
local strikes = require "tools.prove.strikes"

local SECONDS = 4
strikes.GRACE = 10 -- beside other work the machine may delay a client for longer than when it only proves

local CROWD = { plain = 6, several = 1, cramped = 1, loop = 1, proxied = 4, admins = 1, witnesses = 1, foreigners = 1 }

local function quick_faults()
  local names = {}
  for _, fault in ipairs(real.faults()) do
    if fault.quick and (broker.suite or table.concat(fault.needs or {}) ~= "operator") then
      table.insert(names, fault.name)
    end
  end
  return names
end

after_each(stage.clear)
teardown(process.remove_modules)

-- Fails if anything was wrong.
local function run(faults, seconds)
  local directory, seed = process.directory(), os.time()
  local node = broker.suite or { url = os.getenv "AMQP_URL" }
  local result = real.run{ nodes = { node }, keep_nodes = true, directory = directory, seed = seed, seconds = seconds,
    quiet = 1, every = 0.2, poll = 0.5, faults = faults, crowd = CROWD }
  if #result.findings.violations > 0 then
    error(("seed %d, see %s\n%s"):format(seed, directory, result.report), 0)
  end
  process.shell("rm", "-rf", directory)
  return result
end

-- Fails if anything was wrong, or too little happened to tell. A slow machine has some more time for that.
local function prove(faults, tells)
  local seconds, result = SECONDS, nil
  for _ = 1, 4 do
    result = run(faults, seconds)
    local book = result.findings.book
    if #book.holds > 50 and tells(book) then return end
    seconds = 2 * seconds
  end
  error("too little happened to tell\n" .. result.report, 0)
end

describe("processes that lock, administer and look on, while faults strike,", function()
  it("leave journals by which nothing was wrong", function()
    prove(quick_faults(), function(book)
      for _, pool in pairs(book.pools) do
        if (book.held_of[pool.name] or 0) == 0 then return false end
      end
      return #book.saws > 10
    end)
  end)

  it("are alone also where clients die as they claim", function()
    prove({ "claim" }, function(book) return #book.strikes > 5 end)
  end)
end)
