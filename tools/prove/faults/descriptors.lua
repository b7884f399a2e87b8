-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client may open no more descriptors, and has to reconnect.
local function limit(one, number)
  os.execute(("prlimit --pid %d --nofile=%d: >/dev/null 2>&1"):format(one.process.pid, number))
end

return {
  name = "descriptors", needs = { "proxy" },
  strike = function(stage, random)
    local one = stage:pick_proxied(random)
    if not one then return nil end
    local cut = stage:strike{ fault = "descriptors", one = one, excuse = "the connection was reset" }
    limit(one, 3)
    one.proxy:cut_all "both"
    local number = stage:strike{ fault = "descriptors", one = one, hinders = 6 } -- this takes no more locks away
    stage:over(cut)
    return 0.5 + random() * 2, function()
      limit(one, 1024)
      stage:over(number)
    end
  end,
}
