-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- An operator closes the connection on which a client's locks are.
return {
  name = "close", quick = true, needs = { "operator" },
  strike = function(stage, random)
    local one = stage:pick(random, "client")
    if not one then return nil end
    local number = stage:strike{ fault = "close", one = one, excuse = "the operator closed the connection" }
    pcall(one.node.close_connection, one.node, one.connection .. " holder") -- it may not be there just now
    return 0.1, function() stage:over(number) end
  end,
}
