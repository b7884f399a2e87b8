-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Histories of mutexes, for a judge that is not ours (porcupine/main.go says what a line is).
local process = require "spec.support.process"

local history = {}

local function number(value) return value and ("%.0f"):format(value) or "-" end

--- Writes a file. `locks`: a list of { client =, asked =, first =, last =, free = }; free may be nil. `is_naive`: of a
-- recipe that is known to be broken.
function history.write(path, locks, is_naive)
  local lines = {}
  for _, one in ipairs(locks) do
    table.insert(lines, table.concat({ one.client, number(one.asked), number(one.first), number(one.last),
      number(one.free) }, " ") .. "\n")
  end
  process.write(path .. (is_naive and ".naive" or ".history"), table.concat(lines))
end

--- The locks of a ledger (ledger.lua) of one mutex. Its lines are the clock.
function history.of_ledger(text)
  local locks, asked, latest, line = {}, {}, {}, 0
  for act, lane, op in text:gmatch "(%l+) (%S+) (%d+)[^\n]*\n" do
    line = line + 1
    local one = latest[lane]
    if act == "ask" then
      if one then one.free = line end
      asked[lane], latest[lane] = line, nil
    elseif act == "held" then
      if not one or one.op ~= op then
        one = { client = lane, op = op, asked = asked[lane], first = line }
        latest[lane] = one
        table.insert(locks, one)
      end
      one.last = line
    elseif act == "gone" and one then
      one.free, latest[lane] = one.free or line, nil
    end
  end
  return locks
end

return history
