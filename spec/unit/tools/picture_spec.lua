-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local picture = require "tools.picture"

-- What the demo prints, of one slot, then two, then one again.
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
   1.01  -- the administrator added a slot: now 2
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

local function drawn(log) return picture.draw(picture.read(log:gmatch "[^\n]+")) end

describe("the picture of the demo", function()
  it("shows workers, slots, what was done to them, and seconds", function()
    local svg = drawn(LOG)
    for _, part in ipairs{ "<svg", ">worker A<", ">worker B<", ">worker C<", ">1 slots<", ">1 added: 2 slots<",
      ">1 removed: 1 slots<", ">kill -9: worker C gets slot 1 within 0.05 s<", ">a removed slot stays<", ">4<",
      "prefers-color-scheme: dark", "</svg>" } do
      assert.is_truthy(svg:find(part, 1, true), part)
    end
  end)

  it("is not drawn of a run in which two held a slot at once", function()
    local log = LOG:gsub("B acquired 2", "B acquired 1")
    assert.has_error(function() drawn(log) end)
  end)
end)
