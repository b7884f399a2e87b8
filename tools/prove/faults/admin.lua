-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGKILL of an administrator; in the middle of an action, if its journal shows one.
local journal = require "tools.prove.journal"
local socket = require "socket"

local function is_at_work(stage, one)
  local file = io.open(stage.journals .. "/" .. one.lane)
  if not file then return false end
  file:seek("end", -math.min(file:seek "end", 300))
  local act = file:read("*a"):match "[%d.]+\t(%a+)[^\n]*\n$"
  file:close()
  return act == "admin"
end

return {
  name = "admin", quick = true,
  strike = function(stage, random)
    local one = stage:pick(random, "admin")
    if not one then return nil end
    local deadline = journal.now() + 0.5
    while not is_at_work(stage, one) and journal.now() < deadline do socket.sleep(0.001) end
    socket.sleep(random() * 0.012)
    local number = stage:strike{ fault = "admin", one = one }
    stage:kill(one)
    return 0, function() stage:over(number) end
  end,
}
