-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A memory alarm.
return {
  name = "alarm", weight = 0.5, needs = { "operator" },
  strike = function(stage, random)
    if stage.has_alarm then return nil end
    stage.has_alarm = true
    local number = stage:strike{ fault = "alarm", lane = "*", hinders = 1 }
    stage.nodes[1]:alarm(true)
    return 0.5 + random() * 3.5, function()
      stage.nodes[1]:alarm(false)
      stage:over(number)
      stage.has_alarm = false
    end
  end,
}
