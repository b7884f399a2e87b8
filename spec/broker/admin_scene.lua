-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A semaphore that is administered, as a client without this library sees it: for admin_spec, admin_bad_days_spec and
-- interop_spec.
local assert = require "luassert"
local client = require "spec.support.client"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local scene = {}

local LOOKED_AT = 20  -- slots whose queues are looked for, and deleted after each test
local name, raw

function scene.slot(i) return stage.slot(name, i) end
function scene.holder(i) return stage.holder(name, i) end
function scene.mutex() return name .. "-admin" end

--- At the end of the test, slots 1 … last are deleted, and what else an administrator leaves.
function scene.sweep(last, options)
  local of = name
  stage.undo(function ()
    local sweeper = assert(client.connect(nil, options))
    local channel = sweeper:channel()
    for i = 1, last do channel:send{ method = "queue.delete", queue = stage.slot(of, i) } end
    for _, suffix in ipairs{ "-bell", "-admin-bolt" } do
      channel:send{ method = "queue.delete", queue = of .. suffix }
    end
    for _ = 1, last + 2 do assert(channel:await "queue.delete-ok") end
    sweeper:close()
  end)
end

--- From now on the semaphore of this name. Returns the name, and a connection that looks at it, with options as for
-- client.connect.
function scene.use(new_name, options)
  name, raw = new_name, stage.client(nil, options)
  scene.sweep(LOOKED_AT, options)
  return name, raw
end

--- The same, of a new name.
function scene.begin() return scene.use(stage.name()) end

--- The slots that exist, by probing.
function scene.standing(last)
  local found = {}
  for i = 1, last or LOOKED_AT do
    if raw:probe(scene.slot(i)) ~= "absent" then table.insert(found, i) end
  end
  return found
end

--- The numbers from … to.
function scene.row(from, to)
  local numbers = {}
  for i = from, to do table.insert(numbers, i) end
  return numbers
end

function scene.mutex_is_free()
  until_true(function () return not raw:exists(scene.mutex()) end)
end

--- Checks that a message names all of these.
function scene.names(message, ...)
  for _, part in ipairs{ ... } do assert.matches(part, message, 1, true) end
end

return scene
