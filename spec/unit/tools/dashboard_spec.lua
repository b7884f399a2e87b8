-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local dashboard = require "tools.dashboard"

-- What tools/dashboard_run.lua prints, shortened.
local ANSWERS = [[
seconds	3
happens	1.5	the broker stops
panel	Locks that are held	short
series	mutex db
value	0	1
value	1	2
value	2	2
value	3	1
series	slot <b>
value	0	1
value	1	2
value	2	2
value	3	0
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

local function drawn(answers) return dashboard.draw(dashboard.read(answers:gmatch "[^\n]+")) end

describe("the picture of the dashboard", function()
  it("has each panel with its title, its lines, its axis in its unit, and what happened", function()
    local picture = drawn(ANSWERS)
    for _, part in ipairs{ ">Locks that are held<", ">Time until a lock is acquired, 95 of 100<", ">mutex db<",
      ">slot &lt;b&gt;<", ">the broker stops<", ">2<", ">100 ms<", ">20 ms<", ">150/s<", ">0 s<",
      "After 2 s the broker stops.", "Acquires, by result: at most 130/s (acquired).", "prefers-color-scheme: dark" } do
      assert.is_truthy(picture:find(part, 1, true), part)
    end
  end)

  it("has a gap where Prometheus has no value", function()
    local picture = drawn(ANSWERS)
    assert.is_nil(picture:find("nan", 1, true))
    local points = picture:match '<polyline class="line c1" fill="none" points="([^"]*)"'
    assert.equal(2, select(2, points:gsub(",", "")), "of four values one is missing, and the first one is alone")
  end)

  it("is not drawn without answers", function()
    assert.error_matches(function() drawn "oh\n" end, "no answers")
    local without = ANSWERS .. "panel\tConnections\tshort\n"
    assert.error_matches(function() drawn(without) end, 'no answer for the panel "Connections"')
  end)
end)
