-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Numbers of slots that there cannot be. Lua's callers are told by Lua; this is for those of C, who may give anything.

local Peer = require "spec.support.peer"

local LEAST = { create = 1, add = 1, remove = 1, resize = 0 }

describe("an administrator in C", function ()
  local peer

  before_each(function () peer = Peer.open("whole") end)

  for action, least in pairs(LEAST) do
    for _, method in ipairs{ "administer", "administer_tokens" } do
      for _, amount in ipairs{ least - 1, -3, 65536, 2147483647, -2147483648 } do
        it(("is refused, before any traffic: %s %s %d"):format(method, action, amount), function ()
          local op = peer.session[method](peer.session, action, "images", {}, amount)
          peer:failed(op, "limit", ("from %d to 65535, not %d"):format(least, amount))
          peer.holder:silent()
          peer.prober:silent()
        end)
      end
    end
  end
end)
