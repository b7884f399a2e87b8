-- SPDX-FileCopyrightText: the amqp-locks authors
-- SPDX-License-Identifier: MIT

-- For `make test GC=1`: the garbage collector runs all the time, and everything unreachable is collected before the
-- next spec begins.

local busted = require "busted"

collectgarbage("setpause", 1)
collectgarbage("setstepmul", 1000)

busted.subscribe({ "test", "end" }, function()
  collectgarbage()
  collectgarbage() -- a second time, for objects that finalizers of the first run released
  return nil, true
end)
