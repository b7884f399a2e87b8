-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Processes that wait for a slot, and what is visible of them at the doorbell, the queue whose messages, the tokens,
-- wake waiters.
--
--     local name = line.semaphore(1)
--     local one, two = line.process(name), line.process(name)
--     line.join(one) line.join(two)               -- in this order: returns when it waits; its next recheck is far away
--     lock:release()
--     line.next{ one, two }                       --> one, 1, and its result: a slot, or nil, message, code
--     line.leave(one)                             -- releases, and waits until that is done
--     line.settled(name, 1)                       -- the bell has no consumer, and a token for each slot
local assert = require "luassert"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local line = {}

local FAR = 600 -- seconds until a recheck: a waiter that gets a slot before was woken by a token
local SECONDS = 60

--- Returns how many tokens are ready, and how many consumers the bell has: waiters, and holders of a slot with a token.
-- Nil: there is no bell. `bell`: another bell than a semaphore's.
function line.at(name, bell)
  local channel = client.shared():channel()
  local answer, reason = channel:call{ method = "queue.declare", queue = bell or stage.bell(name), passive = true }
  channel:close()
  if answer then return answer.message_count, answer.consumer_count end
  assert.equal(404, reason.code, reason.text)
end

--- Waits until there are so many tokens and consumers at the bell.
function line.until_at(name, tokens, consumers, bell)
  until_true(function()
    local ready, standing = line.at(name, bell)
    local how = ("%s tokens ready, %s consumers; not %s, %s"):format(ready, standing, tokens, consumers)
    return ready == tokens and standing == consumers, how
  end, SECONDS)
end

--- Waits until the bell has no consumers, and a token for each slot, or at most `more` tokens above that.
function line.settled(name, slots, more)
  until_true(function()
    local ready, standing = line.at(name)
    local how = ("%s tokens ready for %d slots, %s consumers"):format(ready, slots, standing)
    return standing == 0 and ready >= slots and ready <= slots + (more or 0), how
  end, SECONDS)
end

--- Waits until there are so many tokens, unacknowledged ones included. `bell`: another bell than a semaphore's. Needs
-- operator access.
function line.until_tokens(name, tokens, bell)
  until_true(function()
    return pcall(broker.suite.tell, broker.suite, broker.LOOKUP
      .. ("[{_, %d}] = rabbit_amqqueue:info(Q, [messages]), ok."):format(tokens), bell or stage.bell(name))
  end, 60) -- each superfluous token may take one `poll`
end

--- A semaphore of so many slots, with its doorbell; returns its name. At the end of the test, when all its processes
-- are gone, the bell must have a token for each slot. A caller that finds a slot free for longer than a busy machine
-- allows takes it without its token, and puts one into the bell at release. So if many callers come at once there may
-- be `more` tokens, but never fewer.
function line.semaphore(slots, more)
  local name = stage.semaphore(slots)
  stage.undo(function() line.settled(name, slots, more) end)
  return name
end

--- A second process with `take(timeout, fair, priority, poll)`, which keeps its result as `lock` and prints when it
-- begins to wait. The options of its connection are Lua source; its broker is $AMQP_URL by default.
function line.process(name, options, url)
  local new = stage.process(name, options, url, { AMQPLOCKS_TRACE = "/dev/stdout" })
  new.name = name
  new:run([[
    function take(timeout, fair, priority, poll)
      local told, message, code
      lock, message, code = sem:acquire{ timeout = timeout, fair = fair, priority = priority, poll = poll,
        on_wait = function()
          if not told then io.stdout:write("waits\n") io.stdout:flush() end
          told = true
        end }
      if not lock then return nil, message, code end
      return lock.slot or true
    end
  ]])
  return new
end

--- Several of these processes.
function line.processes(name, count, options)
  local all = {}
  for i = 1, count do all[i] = line.process(name, options) end
  return all
end

local function waits_told(one) return select(2, one:output():gsub("waits\n", "")) end

-- How often it has done what there is to do before it waits, by its trace.
local function rests(one) return select(2, one:output():gsub("%.c:waiting\n", "")) end

--- Whether a process has begun to wait for the `nth` time (1).
function line.waits(one, nth) return waits_told(one) >= (nth or 1) end

--- A process begins to acquire; this does not wait for the end. `options` are those of acquire; `poll` is far away by
-- default.
function line.begin(one, options)
  options = options or {}
  return one:begin("return take(...)", options.timeout, options.fair, options.priority, options.poll or FAR)
end

-- How many consumers the bell has after the next process joins. Where waiters declare the bell, the first waiter makes
-- the holder subscribe to it, too, if the holder uses this library.
local function expected(one, is_foreign)
  local _, standing = line.at(one.name, one.bell)
  if standing == 0 then _, standing = line.at(one.name, one.bell) end -- a quorum queue may not have answered in time
  local is_first = one.bell and (standing or 0) == 0
  if is_first then return is_foreign and 1 or 2 end
  return standing and standing + 1
end

--- The same, but returns when the process has found no slot, consumes from the bell, if there is one, behind all
-- earlier waiters, and has searched once more since then: it would take what comes free before. A process with a
-- `bell` waits for a lock other than a semaphore. Its holder uses this library, unless `is_foreign`. `poll` must not be
-- shorter than a busy machine needs: a waiter takes a bell that does not answer within `poll` for absent.
function line.join(one, options, is_foreign)
  local told, rested, consumers = waits_told(one), rests(one), expected(one, is_foreign)
  line.begin(one, options)
  until_true(function()
    if one:finished() then error("it does not wait: " .. tostring(one:finish()), 0) end
    local is_waiting = waits_told(one) > told and rests(one) > rested
    return is_waiting and select(2, line.at(one.name, one.bell)) == consumers
  end, SECONDS)
  return one
end

--- Waits until one of the waiting processes is done; returns it, its index in the list, and its result. Removes it from
-- the list. Others may be done, too, if more than one slot was released.
function line.next(waiting, seconds)
  local sockets = {}
  for i, one in ipairs(waiting) do sockets[i] = one.socket end
  local readable = socket.select(sockets, nil, seconds or SECONDS)
  for i, one in ipairs(waiting) do
    if readable[one.socket] then return table.remove(waiting, i), i, one:finish() end
  end
  error(("none of %d was woken"):format(#waiting), 2)
end

--- Waits until a waiting process has acquired a lock that is not a slot. Returns the process.
function line.served(one)
  local got, message = one:finish()
  assert.is_true(got, message)
  return one
end

--- True if all of them still wait; otherwise an error tells what became of the first that does not.
function line.all_wait(waiting)
  for i, one in ipairs(waiting) do
    if one:finished() then error(("number %d does not wait: %s, %s"):format(i, one:finish()), 2) end
  end
  return true
end

--- A process releases its lock.
function line.leave(one) assert.is_true(one:run("return lock:release()")) end

--- Lets all waiting processes acquire, one slot after the other; returns their order, as indices of the original list.
function line.serve(waiting)
  local place, order = {}, {}
  for i, one in ipairs(waiting) do place[one] = i end
  while #waiting > 0 do
    local one, _, slot, message = line.next(waiting)
    assert.is_truthy(slot, message)
    table.insert(order, place[one])
    line.leave(one)
  end
  return order
end

--- All these processes try, or wait briefly and give up, again and again at the same time. Returns how often they
-- acquired. Any failure but "busy" and "timeout" fails the test.
function line.try_and_give_up(processes)
  for _, one in ipairs(processes) do
    one:begin([[
      local got = 0
      for i = 1, 150 do
        local lock, message, code
        if i % 2 == 0 then
          lock, message, code = sem:try_acquire()
        else
          lock, message, code = sem:acquire{ timeout = math.random() * 0.002 }
        end
        if lock then
          got = got + 1
          assert(lock:release())
        else
          assert(code == "busy" or code == "timeout", message)
        end
      end
      return got
    ]])
  end
  local got = 0
  for _, one in ipairs(processes) do got = got + one:finish(60) end
  return got
end

return line
