-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Mutexes and readers–writer locks, which need no setup by an administrator: a view of them from outside, and
-- processes that hold one or wait for one, which spec/support/line.lua lines up. The door is the queue that a writer
-- holds.
--
--     local name = gate.name()                       -- checks at the end of the test that nothing of it is left
--     local one = gate.holder("write", name)         -- a second process that holds it as `lock`
--     local two = gate.process("read", name)         -- a process with `take`, see line.process
--     line.join(two)
--     gate.held("write", name)                       -- as a client without this library sees it
local assert = require "luassert"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local line = require "spec.support.line"
local new_gate = require "spec.support.programs.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local gate = {}

-- Names -------------------------------------------------------------------------------------------------------------

local QUEUES = { mutex = "-mutex", write = "-writer" }
local BELLS = { mutex = "-mutexbell", read = "-rwbell", write = "-rwbell" }

--- The queue that exists while the mutex is held, or the door is shut.
function gate.queue(kind, name) return name .. QUEUES[kind] end

--- The doorbell (the queue whose messages wake waiters), which waiters declare.
function gate.bell(kind, name) return name .. BELLS[kind] end

--- The routing key by which every reader's queue is bound to amq.direct.
function gate.key(name) return name .. "-readers" end

-- The other side --------------------------------------------------------------------------------------------------

--- Whether any reader's queue is bound to amq.direct.
function gate.is_read(name)
  local channel, absent = client.shared():channel():confirm(), false
  channel:publish{ exchange = "amq.direct", routing_key = gate.key(name), mandatory = true }
  local answer
  repeat
    answer = assert(channel:next())
    absent = absent or answer.method == "basic.return"
  until answer.method ~= "basic.return"
  channel:close()
  return not absent
end

--- Whether the mutex is held, the door is shut, or there is a reader.
function gate.held(kind, name)
  if kind == "read" then return gate.is_read(name) end
  return client.shared():locked(gate.queue(kind, name))
end

function gate.until_held(kind, name)
  until_true(function() return gate.held(kind, name) end)
end

function gate.until_free(kind, name)
  until_true(function() return not gate.held(kind, name) end)
end

--- Has a process wait for it in vain, while it is held, until the doorbell exists.
function gate.make_bell(kind, name)
  local gated = gate.new(stage.connect(), kind, name)
  stage.times_out(function(seconds) return gated:acquire{ timeout = seconds, poll = 600 } end,
    function() return client.shared():exists(gate.bell(kind, name)) end)
end

--- Waits until the doorbell has so many tokens and consumers.
function gate.until_at(kind, name, tokens, consumers)
  line.until_at(name, tokens, consumers, gate.bell(kind, name))
end

--- Waits until the holder that learned of waiters has rung: from then on its death wakes the first of them. Until then
-- only the next recheck of a waiter would find the lock free. Needs operator access.
function gate.until_rung(kind, name) line.until_tokens(name, 1, gate.bell(kind, name)) end

--- The queues of this name, without those of longer names. Needs operator access.
function gate.queues(name)
  local all = broker.suite:queues(name .. "-")
  table.sort(all)
  return all
end

--- Holds it as other software would, see stage.occupy_queue.
function gate.occupy(kind, name)
  local queue = kind == "read" and client.unique(name .. "-reader-by-hand") or gate.queue(kind, name)
  local occupant = stage.occupy_queue(queue)
  if kind == "read" then
    assert(occupant.channel:call{ method = "queue.bind", queue = queue, exchange = "amq.direct",
      routing_key = gate.key(name) })
  end
  return occupant
end

-- Taking ----------------------------------------------------------------------------------------------------------

--- A mutex ("mutex"), or one side of a readers–writer lock ("read", "write"), with try_acquire, acquire and with.
function gate.new(conn, kind, name, options) return new_gate(conn, kind, name, options) end

--- Acquires it on a connection of its own or the given one; otherwise as stage.take.
function gate.take(kind, name, options, conn)
  return stage.take(gate.new(conn or stage.connect(), kind, name), options)
end

--- A second process with `take`, see line.process. The options of its connection are Lua source.
function gate.process(kind, name, options, url)
  local new = line.process(name, options, url)
  new:run("sem = require 'spec.support.programs.gate' (conn, ...)", kind, name)
  new.bell = gate.bell(kind, name)
  return new
end

--- Several of these processes.
function gate.processes(kind, name, count)
  local all = {}
  for i = 1, count do all[i] = gate.process(kind, name) end
  return all
end

--- A second process that holds it.
function gate.holder(kind, name, options, url)
  local new = gate.process(kind, name, options, url)
  assert.is_true(new:run("return take(60)"))
  return new
end

--- A process begins to acquire the write lock. Returns when it waits for readers behind the door that it has shut.
function gate.pend(one, options)
  line.begin(one, options)
  until_true(function()
    if one:finished() then error("it does not wait: " .. tostring(select(2, one:finish())), 0) end
    return line.waits(one) and gate.held("write", one.name)
  end)
  return one
end

gate.served = line.served

-- The end ---------------------------------------------------------------------------------------------------------

local function nothing_left(name)
  for _, bell in ipairs{ "mutex", "read" } do stage.delete(gate.bell(bell, name)) end
  if gate.held("mutex", name) then return false, "the mutex is held" end
  if gate.held("write", name) then return false, "the door is shut" end
  if gate.is_read(name) then return false, "a reader holds the lock" end
  if not broker.suite then return true end
  local left = gate.queues(name)
  return #left == 0, table.concat(left, ", ")
end

--- A unique name. At the end of the test, when all its processes are gone, no queue of its locks may be left, except
-- bells, which expire.
function gate.name(suffix)
  local name = stage.name(suffix)
  stage.undo(function()
    until_true(function() return nothing_left(name) end)
  end)
  return name
end

--- A virtual host of its own, with a queue for what gate.catch() makes arrive there. Returns its URL and its name.
function gate.catching()
  local url, vhost = stage.vhost{ connections = 20 }
  local channel = stage.client(url):channel()
  assert(channel:call{ method = "queue.declare", queue = "everything", durable = true })
  assert(channel:call{ method = "queue.bind", queue = "everything", exchange = "amq.fanout" })
  return url, vhost
end

--- By the policy "catch" whatever is sent to amq.direct and reaches no queue arrives in that one.
function gate.catch(vhost)
  broker.suite:set_policy(vhost, "catch", "^amq\\.direct$", '{"alternate-exchange":"amq.fanout"}', "exchanges")
end

return gate
