-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The instructions that this process executes for one acquire and its release: those of the library, of Lua and of
-- rabbitmq-c. callgrind counts them, so other load on the machine hardly changes them. Each number is the difference
-- between a run of MANY cycles and a run of FEW, so what connecting takes is not in it.
local amqplocks = require "amqplocks"
local process = require "spec.support.process"
local rows = require "tools.bench.parts.rows"

local FEW, MANY = 200, 1200

local PROGRAM = [[
  local conn = assert(require("amqplocks").connect())
  local object = conn:%s(%q)
  for _ = 1, %d do assert(assert(object:acquire()):release()) end
  conn:close()
]]

local function executed(kind, name, cycles)
  local output = process.shell("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
    os.getenv "LUA" or "lua", "-e", PROGRAM:format(kind, name, cycles))
  return assert(tonumber(output:match "Collected : (%d+)"), output)
end

local function each(kind, name)
  return (executed(kind, name, MANY) - executed(kind, name, FEW)) / (MANY - FEW)
end

local conn = assert(amqplocks.connect(nil, { name = "bench" }))
local name = ("bench-%d"):format(os.time())
assert(conn:token_semaphore(name):create(1))

local count = each("token_semaphore", name)
rows.row("permit: instructions for acquire + release", "<= 45000", count <= 45000, ("%.0f"):format(count))
rows.plain("the same, fast mutex", ("%.0f"):format(each("fast_mutex", name)))
rows.plain("the same, mutex", ("%.0f"):format(each("mutex", name)))

assert(conn:token_semaphore(name):destroy())
conn:close()
