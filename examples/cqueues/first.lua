-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- The first program for an event loop: three coroutines of cqueues share one connection, and each of them waits until
-- it alone holds the mutex "report". While one waits, the others run.
--
--   first.lua
--
-- The broker is AMQP_URL, or on localhost. No administrator has to create the mutex. examples/loops has larger
-- programs.

local amqplocks = require "amqplocks"
local cqueues = require "cqueues"

local loop, left = cqueues.new(), 3
loop:wrap(function()
  local conn = assert(amqplocks.connect(nil, { driver = "cqueues" }))
  for i = 1, 3 do
    loop:wrap(function()
      assert(conn:mutex("report"):with(function()
        print("coroutine " .. i .. " is alone")
        cqueues.sleep(0.1)
      end))
      left = left - 1
      if left == 0 then conn:close() end -- the loop ends only when the connection is closed
    end)
  end
end)
assert(loop:loop())
