-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local socket = require "socket"

--- Waits for a condition, not for a fixed time: asks again and again until it holds, or fails the test at the deadline.
--
--     local until_true = require "spec.support.until"
--     until_true(function () return not client:exists(queue) end)
--
-- @tparam function fn returns whether the condition holds; a second result describes the state when it does not
-- @tparam[opt=60] number seconds the deadline
-- @return the last result of fn
return function (fn, seconds)
  seconds = seconds or 60 -- beside other work a machine may be slow
  local deadline, pause = socket.gettime() + seconds, 0.001
  while true do
    local asked = socket.gettime()
    local result, why = fn()
    if result then return result, why end
    local now = socket.gettime()
    if now >= deadline then
      error(("still not true after %g s%s"):format(seconds, why and ": " .. tostring(why) or ""), 2)
    end
    socket.sleep(math.max(pause, math.min(4 * (now - asked), 0.5))) -- what costs much is asked seldom
    pause = math.min(pause * 2, 0.05)
  end
end
