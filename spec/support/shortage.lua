-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Failing allocations: in the C module and in rabbitmq-c (programs/shortage.c), and in a Lua with a host of its own
-- (programs/starved.c).
--
--     setup(shortage.begin)
--     teardown(shortage.over)
--     after_each(shortage.disarm)
--     shortage.c.arm(n, on)               -- the module
--     shortage.starved                    -- the host
--     shortage.look_for_leaks(failed, n)  -- after the n-th allocation failed, as did `failed` in all
local assert = require "luassert"
local process = require "spec.support.process"

local OURS, THEIRS = 0, 1

local shortage = {}

function shortage.begin()
  if jit then -- compiled code may keep references to the objects that this looks for
    jit.off()
    jit.flush()
  end
  local starved, paths = process.load_module "starved", ("package.path, package.cpath = %q, %q "):format(package.path,
    package.cpath)
  shortage.c, shortage.starved = process.load_module "shortage", {}
  function shortage.starved.run(code, ...) return starved.run(paths .. code, ...) end
  require "amqplocks.core"
  assert.is_true(shortage.c.take("amqplocks/core.so", OURS) >= 4)
  assert.is_true(shortage.c.take("librabbitmq.so", THEIRS) >= 4)
end

function shortage.disarm() return shortage.c.disarm() end

function shortage.over()
  process.remove_modules()
  if jit then jit.on() end
end

--- Checks that the library has freed all its blocks. rabbitmq-c itself leaks a block when a second allocation fails
-- after a first one (0.11: a connection's buffer): one block for each failure. A leak of the library would be many.
function shortage.look_for_leaks(failed, n)
  for _ = 1, 2 do collectgarbage() end
  local ours, theirs = shortage.c.left(OURS), shortage.c.left(THEIRS)
  shortage.c.forget()
  assert.equal(0, ours, ("left over at allocation %d"):format(n))
  assert.is_true(theirs <= failed, ("%d left over of rabbitmq-c's at allocation %d"):format(theirs, n))
end

return shortage
