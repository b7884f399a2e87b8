-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Acquiring: steps until the lock is held, or the time is over. Waiting polls, with jitter, so no order is promised.
--
-- The answer of a step may be lost: `in_doubt`. With a function for clients the step is then repeated by another
-- client; a step that was done before does nothing the second time, as its ticket is there. But a database may still
-- execute the first one later. So an acquire that was in doubt once, and fails, says `in_doubt`, with the ticket,
-- whatever it fails of.
local acquiring = {}

local REFRESH = 3 -- seconds, at most, between two steps of a writer that waits: see doorman.lua
local PAUSE = 0.05 -- seconds, the first pause before a step is repeated by another client

--- Steps that are repeated after a failure of the connection.
--
-- `wait` has now(), sleep(seconds) or none, and `deadline` by that clock; nil: without limit.
-- Returns what the store's step does, and whether a step was in doubt.
function acquiring.step(store, wait, resource, verb, mine, is_reader)
  local doubt, pause = false, PAUSE
  while true do
    local outcome, message, code = store:step(resource, verb, mine, is_reader)
    doubt = doubt or code == "in_doubt"
    local is_broken = outcome == nil and (code == "in_doubt" or code == "unreachable" or code == "contended")
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if not is_broken or not store:renews() or not wait.sleep or left <= 0 then return outcome, message, code, doubt end
    wait.sleep(math.min(pause * (0.5 + math.random()), left))
    pause = math.min(pause * 2, 1)
  end
end

local function doubtful(resource, mine, message)
  return nil, ("in_doubt: %s may be held, under the ticket %s: %s"):format(resource.words, mine, message), "in_doubt"
end

-- A writer that waits no longer lets the readers in. Without an answer its mark lapses after 10 seconds.
local function withdraw(store, resource, verb, mine)
  if verb == "wait" then store:step(resource, "leave", mine) end
end

local function fail(store, resource, verb, mine, doubt, message, code)
  if not doubt then
    withdraw(store, resource, verb, mine)
    return nil, message, code
  end
  local outcome = store:step(resource, "leave", mine) -- the step in doubt may be executed later, all the same
  if code == "in_doubt" then message = message:gsub("^in_doubt: ", "") end
  return doubtful(resource, mine, message .. (outcome == "released" and "; it was released" or ""))
end

local function too_late(resource, seconds, waits)
  if not waits then return ("busy: %s is held by another client"):format(resource.words), "busy" end
  return ("timeout: %s was held by other clients for %g seconds"):format(resource.words, seconds), "timeout"
end

--- Acquires. `verb` is "read" or "write". `how`: timeout (nil: without limit; 0: one step), poll, on_wait, all checked.
-- Returns the time of the acquisition in milliseconds, or nil, message, code.
function acquiring.acquire(store, wait, resource, verb, mine, how)
  local begun = wait.now()
  local waits = how.timeout ~= 0
  wait.deadline = how.timeout and begun + how.timeout
  if waits and verb == "write" then verb = "wait" end
  local doubt = false
  while true do
    local outcome, since, code, doubted = acquiring.step(store, wait, resource, verb, mine)
    doubt = doubt or doubted
    if outcome == "held" then return since end
    if outcome == nil then return fail(store, resource, verb, mine, doubt, since, code) end
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if left <= 0 then
      return fail(store, resource, verb, mine, doubt, too_late(resource, how.timeout, waits))
    end
    if how.on_wait then
      local fine, problem = pcall(how.on_wait, wait.now() - begun, resource.words .. " is held by another client")
      if not fine then
        withdraw(store, resource, verb, mine)
        error(problem, 0)
      end
    end
    local pause = how.poll * (0.5 + math.random())
    wait.sleep(math.min(pause, left, verb == "wait" and REFRESH or math.huge))
  end
end

return acquiring
