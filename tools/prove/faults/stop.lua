-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- SIGSTOP and SIGCONT of a client: for a moment, for about as long as the broker waits for its heartbeats of one second
-- (two to three of them), or for longer.
return {
  name = "stop", quick = true, weight = 3,
  strike = function(stage, random)
    local one = stage:pick(random, "client")
    if not one then return nil end
    local number = stage:strike{ fault = "stop", one = one, hinders = 6 }
    one.process:signal "STOP"
    local seconds = ({ random() * 0.2, 1.5 + random() * 1.5, 3 + random() })[random(3)]
    return seconds, function()
      one.process:signal "CONT"
      stage:over(number)
    end
  end,
}
