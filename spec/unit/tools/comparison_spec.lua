-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local comparison = require "tools.comparison"

-- What tools/bench/rivals.lua prints, shortened.
local REPORT = [[
machine: 2 processors, a machine; Linux 6.1; load 0.5
software: Lua 5.4, RabbitMQ 3.10.8, rabbitmq-c 0.11.0
running tools/bench/rivals.lua
beside: Redis 7.0.15, etcd 3.4.23, PostgreSQL 15.18

uncontended: acquire + release, ms
                                      median     quartiles       / mutex
fast mutex                              0.20     0.15-0.25          0.05
mutex                                   4.00     3.42-4.00          1.00
etcd, lock service                      0.97     0.91-1.09          0.26

16 wait, each holds it for 2 ms: from release until the next holds, ms
                                      median           p99      a second
fast mutex                              0.00          0.69           409
mutex                                   3.63          9.29           160
etcd, lock service                      0.81         55.92           157

a holder ends: until the next holds, ms; time to live, heartbeat: 10 s
                                     SIGKILL         worst       SIGSTOP
fast mutex                              2.12          2.62      29380.64
mutex                                   8.68          9.91      29182.58
PostgreSQL, advisory lock            > 60000       > 60000       > 60000

summary                                                measured  quartiles    budget
]]

local function read(report) return comparison.read(report:gmatch "([^\n]*)\n") end

local function drawn(report) return comparison.draw(read(report)) end

-- The width of the bar that stands before this value.
local function width(picture, value)
  return tonumber(picture:match('width="([%d.]+)"[^\n]*\n[^\n]*>' .. value .. "<"))
end

describe("the picture of the comparison with other lock services", function()
  it("has three panels, each with a bar, a name and a time for each lock", function()
    local picture = drawn(REPORT)
    for _, part in ipairs{ "<svg", ">No contention: acquire + release<", "next of 16 waiting processes",
      "heartbeat: 10 s", ">0.2 ms<", ">4 ms<", ">3.63 ms<", ">&lt; 0.01 ms<", ">8.68 ms<", ">&gt; 60 s<",
      ">PostgreSQL, advisory lock<", ">software: Lua 5.4, RabbitMQ 3.10.8, rabbitmq-c 0.11.0<",
      "acquire + release: fast mutex 0.2 ms, mutex 4 ms, etcd lock service 0.97 ms.", "</svg>" } do
      assert.is_truthy(picture:find(part, 1, true), part)
    end
    for _, class in ipairs{ "first", "ours", "others" } do
      assert.equal(3 + 1, select(2, picture:gsub(('class="%s"'):format(class), "")), "one in the legend, too")
    end
  end)

  it("has a logarithmic axis: ten times the time is as much longer everywhere", function()
    local report = REPORT:gsub("(mutex +)3.63", "%140.00"):gsub("(etcd, lock service +)0.81", "%10.40")
    local picture = drawn(report)
    local step = width(picture, "4 ms") - width(picture, "0.4 ms")
    assert.is_true(step > 0)
    assert.near(step, width(picture, "40 ms") - width(picture, "4 ms"), 0.01)
  end)

  it("is not drawn of a report that lacks a table", function()
    local cut = REPORT:sub(1, REPORT:find("a holder ends", 1, true) - 1)
    assert.has_error(function() read(cut) end,
      "the report has no table for: Crash: from SIGKILL of the holder until the next holds the lock")
  end)
end)
