-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Common functions of the specs of locks on a real broker: connections that end with the test, semaphores of unique
-- names, the view of other clients, and the check that nothing is left behind.
--
--     local stage = require "spec.support.stage"
--     stage.tidy()
--     local name = stage.semaphore(3)
--     local lock = assert(stage.connect():semaphore(name):try_acquire())
--     assert.is_true(stage.held(name, lock.slot))       -- as a client without this library sees it
local amqplocks = require "amqplocks"
local await = require "amqplocks.waiting.await"
local assert = require "luassert"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local socket = require "socket"
local until_true = require "spec.support.until"

local stage = {}

local connections, clients, kept, semaphores, undone = {}, {}, {}, {}, {}

local SLOT = { durable = true, arguments = {
  ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head",
} }

-- Connections -------------------------------------------------------------------------------------------------------

--- A connection of the library, to $AMQP_URL by default.
function stage.connect(url, options)
  local new = assert(amqplocks.connect(url, options))
  table.insert(connections, new)
  return new
end

--- A connection of the raw client. Arguments as for client.connect.
function stage.client(...)
  local new = assert(client.connect(...))
  table.insert(clients, new)
  return new
end

--- A second process, with a connection `conn` (to $AMQP_URL by default) and a semaphore `sem` of this name. The options
-- are Lua source, `environment` is that of process.start.
function stage.process(name, options, url, environment)
  local new = process.start(environment)
  new:run("conn = assert(require('amqplocks').connect(..., " .. (options or "nil") .. "))", url)
  new:run("sem = conn:semaphore(...)", name)
  return new
end

-- Semaphores --------------------------------------------------------------------------------------------------------

--- The name of slot i's queue, and of its holder's queue.
function stage.slot(name, i) return ("%s-%d-A"):format(name, i) end
function stage.holder(name, i) return ("%s-%d-B"):format(name, i) end

--- A unique name, with a suffix.
function stage.name(suffix)
  local name = client.unique("lock") .. (suffix or "")
  semaphores[name] = 1
  return name
end

--- A name for a mutex. Its doorbell, which waiters declare, is deleted at the end of the test.
function stage.mutex()
  local name = stage.name()
  stage.undo(function() stage.delete(name .. "-mutexbell") end)
  return name
end

--- Adds slots first … last to a semaphore, without the library. The arguments are those of the design unless given.
function stage.add(name, first, last, options)
  semaphores[name] = math.max(semaphores[name], last)
  for i = first, last do assert(client.shared():declare(stage.slot(name, i), options or SLOT)) end
end

--- The name of a semaphore's doorbell.
function stage.bell(name) return name .. "-bell" end

--- Puts so many tokens into a doorbell, as a client that rings does.
function stage.ring(name, tokens)
  for _ = 1, tokens do
    assert.equal("present", client.shared():probe(stage.bell(name), { type = "amqplocks.token", delivery_mode = 2 }))
  end
end

--- Declares a doorbell, with so many tokens in it.
function stage.hang(name, tokens)
  assert(client.shared():declare(stage.bell(name), { durable = true, arguments = { ["x-queue-type"] = "classic" } }))
  stage.ring(name, tokens)
end

--- A semaphore of so many slots, with its doorbell; returns its name.
function stage.semaphore(slots, suffix)
  local name = stage.name(suffix)
  stage.hang(name, slots)
  stage.add(name, 1, slots)
  return name
end

--- Deletes a queue that is not exclusive.
function stage.delete(queue) assert(client.shared():delete(queue)) end

--- Deletes a slot, as an administrator would.
function stage.remove(name, i) stage.delete(stage.slot(name, i)) end

--- Deletes what there is of this name, by an administrator. A destroy of nothing takes the broker 20 ms.
function stage.destroy(admin, name)
  if client.shared():exists(stage.bell(name)) then admin:admin(name):destroy() end
  if client.shared():exists(name .. ".semaphore") then admin:token_semaphore(name):destroy() end
  for _, queue in ipairs { "mutexbell", "rwbell", "manybell", "tokenmanybell", "fastmutex" } do
    stage.delete(name .. "-" .. queue)
  end
end

--- Waits for an operation that was begun without waiting; returns its result.
function stage.finish(conn, operation)
  return await(conn._driver, nil, function() return operation end)
end

--- Has each wait of a native connection be fn(wait, operation), where wait(operation) is the driver's own. The core
-- finishes no operation by itself then. Returns a function that undoes this.
function stage.wait_by(conn, fn)
  local driver = conn._driver
  local wait, finishes = driver.wait, driver.finishes
  driver.wait = function(operation) return fn(wait, operation) end
  driver.finishes = false
  return function() driver.wait, driver.finishes = wait, finishes end
end

--- Acquires a slot, by try_acquire unless there are options for acquire. It is held until it is released or the test
-- ends, whether or not the test keeps a reference to the lock.
function stage.take(semaphore, options)
  local lock
  if options then lock = assert(semaphore:acquire(options)) else lock = assert(semaphore:try_acquire()) end
  table.insert(kept, lock)
  return lock
end

-- The other side --------------------------------------------------------------------------------------------------

--- Whether slot i is held: its holder's queue is exclusive to another connection.
function stage.held(name, i) return client.shared():locked(stage.holder(name, i)) end

--- Whether nobody holds slot i.
function stage.free(name, i) return not client.shared():exists(stage.holder(name, i)) end

function stage.until_free(name, i, seconds)
  until_true(function() return stage.free(name, i) end, seconds)
end

function stage.until_held(name, i, seconds)
  until_true(function() return stage.held(name, i) end, seconds)
end

local occupant = {}
occupant.__index = occupant

--- Holds a queue as other software would, on a connection of its own to the given address or $AMQP_URL; it does not
-- notify waiters when it releases.
--     occupant:await_looks(3)  waits until clients have probed it three more times, by publishing
--     occupant:asked(seconds)  the next message to it, if one arrives within so many seconds (0)
--     occupant:release()       occupant:abort(), as if it were killed
function stage.occupy_queue(queue, url)
  local self = setmetatable({ channel = stage.client(url):channel(), queue = queue }, occupant)
  assert(self.channel:call{ method = "queue.declare", queue = queue, exclusive = true, auto_delete = true,
    arguments = SLOT.arguments })
  assert(self.channel:call{ method = "basic.consume", queue = queue, no_ack = true })
  return self
end

--- Holds slot i so.
function stage.occupy(name, i, url) return stage.occupy_queue(stage.holder(name, i), url) end

function occupant:await_looks(n)
  for _ = 1, n do assert(self.channel:await "basic.deliver") end
end

function occupant:asked(seconds) return self.channel:delivered(seconds) end

function occupant:release() assert(self.channel:call{ method = "queue.delete", queue = self.queue }) end

function occupant:abort() self.channel.client:abort() end

-- Results -----------------------------------------------------------------------------------------------------------

--- Checks that a call failed as it should: with nil (held: false), a message that begins with the code, and the code.
-- Returns the message.
function stage.fails(code, result, message, got)
  assert(not result, "it did not fail")
  assert.equal(code, got, message)
  assert.equal(code .. ": ", message:sub(1, #code + 2))
  return message
end

--- Lets an operation time out, with longer and longer timeouts, until its message shows what the test is about: how
-- long it takes to come that far depends on the broker. `act` gets seconds, and returns nil, message, "timeout";
-- `shows` gets the message. Returns the message and the seconds.
function stage.times_out(act, shows)
  local patience, message = 0.05, nil
  until_true(function()
    patience = 2 * patience
    message = stage.fails("timeout", act(patience))
    return shows(message), message
  end)
  return message, patience
end

--- Whether a time, in seconds since the epoch, is between `before`, from os.time(), and now. Now is not taken from
-- os.time(), which lags.
function stage.is_since(before, time) return before <= time and time <= socket.gettime() + 0.001 end

-- The end -----------------------------------------------------------------------------------------------------------

--- Runs fn at the end of the test, also if the test fails; the last one first.
function stage.undo(fn) table.insert(undone, fn) end

--- A user with these permissions, or none, until the end of the test. Returns its URL and its name. Needs an operator.
function stage.user(...)
  local user = client.unique "user"
  stage.undo(function() broker.suite:delete_user(user) end)
  return broker.suite:add_user(user, ...), user
end

--- A connection of the library as such a user. Returns it and the user's name.
function stage.connect_as(configure, write, read, options)
  local url, user = stage.user(configure, write, read)
  return stage.connect(url, options), user
end

--- A virtual host, until the end of the test. Returns its URL and its name. Arguments as for add_vhost of broker.lua.
-- Needs an operator.
function stage.vhost(...)
  local vhost = client.unique "vhost"
  stage.undo(function() broker.suite:delete_vhost(vhost) end)
  return broker.suite:add_vhost(vhost, ...), vhost
end

--- Waits until there are so many connections of this name at the broker. Needs an operator.
function stage.until_connected(name, number)
  local ask = [[
    All = [P || [{client_properties, P}] <- rabbit_networking:connection_info_all([client_properties])],
    Ours = [P || P <- All, lists:keyfind(<<"connection_name">>, 1, P) =:= {<<"connection_name">>, longstr, $1}],
    case integer_to_binary(length(Ours)) of $2 -> ok; Other -> Other end.]]
  until_true(function() return pcall(broker.suite.tell, broker.suite, ask, name, tostring(number)) end)
end

--- Waits until the broker, in an alarm, reads no more messages of this connection of the library. It reads one more
-- of each connection first, and answers it or says connection.blocked first.
function stage.block(conn)
  local mutex = conn:mutex(client.unique "none")
  until_true(function() return conn:stats().blocked, mutex:revoke() end)
end

--- Raises an alarm (memory by default) until the end of the test. Waits until connections are notified, and these
-- connections of the library are blocked.
function stage.alarm(resource, ...)
  stage.undo(function() broker.suite:alarm(false, resource) end)
  broker.suite:alarm(true, resource)
  local channel = stage.client():channel() -- opened once: a broker that blocks the connection reads no channel.open
  local probing = channel.client
  until_true(function()
    channel:publish{ routing_key = "none" }
    return probing:find(function(frame) return frame.method == "connection.blocked" end, 0.05)
  end)
  probing:abort() -- the broker would not read connection.close
  for _, conn in ipairs{ ... } do stage.block(conn) end
end

local function clear_semaphore(name, slots)
  for i = 1, slots do
    stage.until_free(name, i)
    stage.remove(name, i)
  end
  stage.delete(stage.bell(name))
  assert(not client.shared():exists(name .. "-admin"), "somebody still administers " .. name)
end

--- Call this after each test: it ends what the test began, checks that no slot of its semaphores is held, deletes them.
function stage.clear()
  local old_connections, old_clients, old_semaphores, old_undone = connections, clients, semaphores, undone
  connections, clients, kept, semaphores, undone = {}, {}, {}, {}, {} -- first: a failure does not affect other tests
  local trouble
  local function try(fn, ...) -- the rest is done also after a failure
    local fine, problem = pcall(fn, ...)
    trouble = trouble or not fine and problem or nil
  end
  try(process.clear)
  for _, old in ipairs(old_connections) do try(old.close, old) end
  for _, old in ipairs(old_clients) do try(old.close, old) end
  for i = #old_undone, 1, -1 do try(old_undone[i]) end
  for name, slots in pairs(old_semaphores) do try(clear_semaphore, name, slots) end
  if trouble then error(trouble, 0) end
end

local RUN = client.unique("lock"):match("^(.*%.)%d+$") -- the prefix of all names of this run

--- Call this at the end of a file: it checks that no queue of this run is left on the broker.
function stage.check()
  if broker.suite then broker.suite:assert_none(RUN) end
end

--- Call this at the beginning of a file: these functions, then `clear`, are called after each test, `check` at the end.
function stage.tidy(...)
  local busted, before = require "busted", { ... }
  busted.after_each(function()
    for _, fn in ipairs(before) do fn() end
    stage.clear()
  end)
  busted.teardown(stage.check)
end

return stage
