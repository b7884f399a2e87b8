-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Invalid numbers of slots. The Lua module checks the arguments of Lua callers; this is for C callers, which may pass
-- any number.

local Peer = require "spec.support.peer"

local LEAST = { create = 1, add = 1, remove = 1, resize = 0 }

describe("an administrator in C", function ()
  local peer

  before_each(function () peer = Peer.open() end)

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
