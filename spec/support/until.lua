-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local socket = require "socket"

--- Waits for a condition, never for luck: asks again and again until it holds, or fails the test at the deadline.
--
--     local until_true = require "spec.support.until"
--     until_true(function () return not client:exists(queue) end)
--
-- @tparam function fn what must become true; a second result says, when it does not, how things stand
-- @tparam[opt=5] number seconds how long it may take
-- @return what fn returned in the end
return function (fn, seconds)
  seconds = seconds or 5
  local deadline, pause = socket.gettime() + seconds, 0.001
  while true do
    local result, why = fn()
    if result then return result, why end
    if socket.gettime() >= deadline then
      error(("still not true after %g s%s"):format(seconds, why and ": " .. tostring(why) or ""), 2)
    end
    socket.sleep(pause)
    pause = math.min(pause * 2, 0.05)
  end
end
