-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An operator closes the connection that holds a client's locks.
return {
  name = "close", quick = true, needs = { "operator" },
  strike = function(stage, random)
    local one = stage:pick(random, "client")
    if not one then return nil end
    local number = stage:strike{ fault = "close", one = one, excuse = "the operator closed the connection" }
    pcall(one.node.close_connection, one.node, one.connection .. " holder") -- it may not exist at the moment
    return 0.1, function() stage:over(number) end
  end,
}
