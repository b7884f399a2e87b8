-- SPDX-FileCopyrightText: the amqp-locks authors
-- SPDX-License-Identifier: MIT

-- For `make test GC=1`: the collector never rests, and everything unreachable is gone before the next spec begins.

local busted = require "busted"

collectgarbage("setpause", 1)
collectgarbage("setstepmul", 1000)

busted.subscribe({ "test", "end" }, function()
  collectgarbage()
  collectgarbage() -- a second time, for what the first one's finalizers let go
  return nil, true
end)
