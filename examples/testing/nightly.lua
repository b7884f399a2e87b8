-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A job that one machine of several does each night. It gets its connection from its caller, so a test can give it one
-- of amqplocks.testing. nightly_spec.lua tests it.
local nightly = {}

--- Moves the rows, one by one, while this client holds the mutex "nightly". `move(row, fence)` writes one row.
-- Returns "done"; "elsewhere": another machine is at it; "stopped", and how many rows were moved; or nil, message.
function nightly.run(conn, rows, move)
  local mutex = conn:mutex("nightly", { fenced = true })
  local had, result, count = mutex:with({ timeout = 60 }, function(lock)
    for i, row in ipairs(rows) do
      if not lock:held() or lock:revoked() then return "stopped", i - 1 end
      move(row, lock.fence)
    end
    return "done", #rows
  end)
  if had then return result, count end
  local message, code = result, count
  if code == "timeout" then return "elsewhere" end
  return nil, message
end

return nightly
