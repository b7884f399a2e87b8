-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Processes that wait for a slot, and what can be seen of them at the doorbell.
--
--     local name = line.semaphore(1)
--     local one, two = line.process(name), line.process(name)
--     line.join(one) line.join(two)               -- in this order: returns when it waits, its next look being far away
--     lock:release()
--     line.next{ one, two }                       --> one, 1, and what it got: a slot, or nil, message, code
--     line.leave(one)                             -- releases, waits until that is done
--     line.settled(name, 1)                       -- nobody stands at the bell, and it has a token for each slot
local assert = require "luassert"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local line = {}

local FAR = 600 -- seconds: whoever looks again only then, and gets a slot, was woken
local SECONDS = 20

--- How many tokens of a semaphore nobody has in hand, and how many consumers its bell has: those who wait, and those
-- who hold a slot with a token. Nil: there is no bell. `bell`: another than a semaphore's.
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

--- Waits until the books are right: nobody stands at the bell; it has a token for each slot, or at most so many more.
function line.settled(name, slots, more)
  until_true(function()
    local ready, standing = line.at(name)
    local how = ("%s tokens ready for %d slots, %s consumers"):format(ready, slots, standing)
    return standing == 0 and ready >= slots and ready <= slots + (more or 0), how
  end, SECONDS)
end

--- Waits until there are so many tokens, those in hand included. Takes an operator.
function line.until_tokens(name, tokens)
  until_true(function()
    return pcall(broker.suite.tell, broker.suite, "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
      .. ("$1)), [{_, %d}] = rabbit_amqqueue:info(Q, [messages]), ok."):format(tokens), stage.bell(name))
  end, 60) -- each that is too many may take a poll
end

--- A semaphore of so many slots, with its doorbell; gives its name. At the end of the test, when all who took part are
-- gone, the books must be right. Who comes when a slot has been free for longer than a busy machine allows takes it
-- without its token, and rings in the end: where many come at once there may be `more` tokens, but never fewer.
function line.semaphore(slots, more)
  local name = stage.semaphore(slots)
  stage.undo(function() line.settled(name, slots, more) end)
  return name
end

--- A second process with `take(timeout, fair, priority, poll)`, which keeps what it gets as `lock`, and says when it
-- begins to wait. Options of its connection are Lua source; its broker is $AMQP_URL unless told.
function line.process(name, options, url)
  local new = stage.process(name, options, url)
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

--- So many of them.
function line.processes(name, count, options)
  local all = {}
  for i = 1, count do all[i] = line.process(name, options) end
  return all
end

local function waits_told(one) return select(2, one:output():gsub("waits\n", "")) end

--- Whether a process has begun to wait for the `nth` time (1).
function line.waits(one, nth) return waits_told(one) >= (nth or 1) end

--- Has a process acquire, without waiting for the end. `options` are those of acquire; `poll` is far away unless given.
function line.begin(one, options)
  options = options or {}
  return one:begin("return take(...)", options.timeout, options.fair, options.priority, options.poll or FAR)
end

-- How many will stand at the bell with the next one that joins. Where the bell is made by those who wait, the first of
-- them is followed by whoever holds what they wait for; not so by other software.
local function expected(one, is_foreign)
  local _, standing = line.at(one.name, one.bell)
  local is_first = one.bell and (standing or 0) == 0
  if is_first then return is_foreign and 1 or 2 end
  return standing and standing + 1
end

--- The same, but returns when it has found no slot and stands at the bell, if there is one, behind all who did before.
-- One with a `bell` waits for something else than a semaphore, held by this library unless it `is_foreign`. A bell that
-- does not answer within the `poll` would be none: it must not be shorter than a busy machine takes.
function line.join(one, options, is_foreign)
  local told, consumers = waits_told(one), expected(one, is_foreign)
  line.begin(one, options)
  until_true(function()
    if one:finished() then error("it does not wait: " .. tostring(one:finish()), 0) end
    return waits_told(one) > told and select(2, line.at(one.name, one.bell)) == consumers
  end, SECONDS)
  return one
end

--- Has a process wait in vain, for as long as it takes to be seen at the bell, behind who holds what it waits for: how
-- long that is depends on the broker.
function line.give_up(one, fair)
  local consumers, is_seen = assert(expected(one)), false
  stage.times_out(function(seconds)
    line.begin(one, { timeout = seconds, fair = fair })
    until_true(function()
      is_seen = is_seen or select(2, line.at(one.name, one.bell)) == consumers
      return one:finished()
    end, seconds + SECONDS)
    return one:finish()
  end, function() return is_seen end)
end

--- Waits until one of those who wait has come to an end; gives it, its place in the list, and what it got. It is taken
-- from the list. Others may have, too, when more than one slot came free.
function line.next(waiting, seconds)
  local sockets = {}
  for i, one in ipairs(waiting) do sockets[i] = one.socket end
  local readable = socket.select(sockets, nil, seconds or SECONDS)
  for i, one in ipairs(waiting) do
    if readable[one.socket] then return table.remove(waiting, i), i, one:finish() end
  end
  error(("none of %d was woken"):format(#waiting), 2)
end

--- Whether none of those who wait has come to an end by now.
function line.all_wait(waiting)
  for _, one in ipairs(waiting) do
    if one:finished() then return false end
  end
  return true
end

--- Has a process release what it took.
function line.leave(one) assert.is_true(one:run("return lock:release()")) end

--- Has those who wait served to the last, one slot after the other; gives their order, as places in the list at first.
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

return line
