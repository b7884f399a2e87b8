-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGKILL of a client, at any moment.
return {
  name = "kill", quick = true, weight = 2,
  strike = function(stage, random)
    local one = stage:pick(random, "client")
    if not one then return nil end
    local number = stage:strike{ fault = "kill", one = one }
    stage:kill(one)
    return 0, function() stage:over(number) end
  end,
}
