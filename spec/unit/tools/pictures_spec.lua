-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The pictures of the documents, drawn from what the demo, the benchmark and the dashboard's run print, shortened.
local comparison = require "tools.comparison"
local dashboard = require "tools.dashboard"
local picture = require "tools.picture"

local function drawn(tool, text) return tool.draw(tool.read(text:gmatch "([^\n]*)\n")) end

local function has(svg, parts)
  for _, part in ipairs(parts) do assert.is_truthy(svg:find(part, 1, true), part) end
end

describe("the picture of the demo", function()
  local LOG = [[
Three workers share a slot.
   0.00  admin begins create 1
   0.02  admin ends create 1
   0.10  A started 101
   0.10  A waits
   0.20  A acquired 1
   0.30  B waits
   0.40  C waits
   1.00  admin begins add 1
   1.01  admin ends add 2
   1.10  B acquired 2
   2.00  admin kills A
   2.00  -- worker A is killed with SIGKILL while it holds slot 1
   2.01  A ended 137
   2.04  C acquired 1
   3.00  admin begins remove 1
   3.01  admin ends remove 1
   4.00  B releases 2
   4.50  C releases 1
   4.60  B waits
   4.70  B acquired 1

4 acquisitions, never more holders than slots.
]]

  it("shows workers, slots and what was done to them", function()
    has(drawn(picture, LOG), { "<svg", ">worker A<", ">worker C<", ">1 slots<", ">1 added: 2 slots<",
      ">1 removed: 1 slots<", ">kill -9: worker C gets slot 1 within 0.05 s<", "</svg>" })
  end)

  it("is not drawn of a run in which two held a slot at once", function()
    assert.has_error(function() drawn(picture, (LOG:gsub("B acquired 2", "B acquired 1"))) end)
  end)
end)

describe("the picture of the comparison with other lock services", function()
  local REPORT = [[
machine: 2 processors, a machine; Linux 6.1; load 0.5
software: Lua 5.4, RabbitMQ 3.10.8, rabbitmq-c 0.11.0
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

a holder ends: until the next holds, ms; time to live, heartbeat: 10 s
                                     SIGKILL         worst       SIGSTOP
mutex                                   8.68          9.91      29182.58
PostgreSQL, advisory lock            > 60000       > 60000       > 60000

summary                                                measured  quartiles    budget
]]

  it("has three panels, each with a bar, a name and a time for each lock", function()
    has(drawn(comparison, REPORT), { "<svg", ">No contention: acquire + release<", "next of 16 waiting processes",
      "heartbeat: 10 s", ">0.2 ms<", ">4 ms<", ">3.63 ms<", ">&lt; 0.01 ms<", ">8.68 ms<", ">&gt; 60 s<",
      ">PostgreSQL, advisory lock<", ">software: Lua 5.4, RabbitMQ 3.10.8, rabbitmq-c 0.11.0<",
      "acquire + release: fast mutex 0.2 ms, mutex 4 ms, etcd lock service 0.97 ms.", "</svg>" })
  end)

  it("is not drawn of a report that lacks a table", function()
    local cut = REPORT:sub(1, REPORT:find("a holder ends", 1, true) - 1)
    assert.error_matches(function() drawn(comparison, cut) end, "the report has no table for: Crash")
  end)
end)

describe("the picture of the dashboard", function()
  local ANSWERS = [[
seconds	3
happens	1.5	the broker stops
panel	Locks that are held	short
series	slot <b>
value	0	1
value	1	2
panel	Time until a lock is acquired, 95 of 100	s
series	mutex db
value	0	0.02
value	1	NaN
value	2	0.08
value	3	0.1
panel	Acquires, by result	ops
series	acquired
value	0	130
value	1	40
]]

  it("has each panel with its title, lines, and axis in its unit, gaps without a value, and what happened", function()
    local svg = drawn(dashboard, ANSWERS)
    has(svg, { ">Locks that are held<", ">Time until a lock is acquired, 95 of 100<", ">mutex db<", ">slot &lt;b&gt;<",
      ">the broker stops<", ">2<", ">100 ms<", ">150/s<", "After 2 s the broker stops.",
      "Acquires, by result: at most 130/s (acquired)." })
    assert.is_nil(svg:find("nan", 1, true))
    local _, points = svg:match('100<.-<polyline[^>]* points="([^"]*)"'):gsub(",", "")
    assert.equal(2, points, "of four values one is missing, and the first one is alone")
  end)

  it("is not drawn without answers", function()
    assert.error_matches(function() drawn(dashboard, "oh\n") end, "no answers")
    assert.error_matches(function() drawn(dashboard, ANSWERS .. "panel\tConnections\tshort\n") end,
      'no answer for the panel "Connections"')
  end)
end)
