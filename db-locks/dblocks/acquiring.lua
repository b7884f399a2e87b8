-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Acquiring: steps until the lock is held, or the time is over. Waiting polls, with jitter, so no order is promised.
--
-- The answer of a step may be lost: `in_doubt`. With a function for clients the step is then repeated by another
-- client; a step that was done before does nothing the second time, as its ticket is there. But for some seconds the
-- database may still execute the first one: see late.lua. So an acquire that was in doubt once, and fails, says
-- `in_doubt`, with the ticket, whatever it fails of.
local clock = require "dblocks.clock"
local late = require "dblocks.late"

local acquiring = {}

local REFRESH = 3 -- seconds, at most, between two steps of a writer that waits: see doorman.lua
local PAUSE = 0.05 -- seconds, the first pause before a step is repeated by another client

local FOREIGN = "refused: %s is held by readers of other software, or the list of its readers is lost"

-- One step. An acquire whose answer was lost may still be executed.
local function once(store, wait, resource, verb, mine, ...)
  local outcome, detail, code = store:step(resource, verb, mine, ...)
  if outcome == "foreign" then return nil, FOREIGN:format(resource.words), "refused" end
  if code == "in_doubt" and (verb == "read" or verb == "write" or verb == "wait") then
    late.note(store, resource, mine, wait.now)
  end
  return outcome, detail, code
end

--- Steps that are repeated after a failure of the connection, by another one, and after lost races. `since`: since when
-- the ticket holds the lock; `is_reader`: the ticket is known to be a reader's.
--
-- `wait` has now(), sleep(seconds) or none, and `deadline` by that clock (nil: without limit). Before each repetition
-- after a failure wait.trouble(message, doubt) is called, if it is there, and before the first one wait.log("warning",
-- message). Returns what the store's step does, and whether a step was in doubt.
function acquiring.step(store, wait, resource, verb, mine, since, is_reader)
  local doubt, pause = false, PAUSE
  while true do
    local outcome, message, code = once(store, wait, resource, verb, mine, since, is_reader)
    doubt = doubt or code == "in_doubt"
    local is_broken = outcome == nil and (code == "in_doubt" or code == "unreachable")
    local is_repeated = is_broken and store:renews() or code == "contended"
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if not is_repeated or not wait.sleep or left <= 0 then return outcome, message, code, doubt end
    if is_broken and pause == PAUSE and wait.log then wait.log("warning", message) end
    if is_broken and wait.trouble then wait.trouble(message, doubt) end
    local slept, problem = clock.protected(wait.sleep, math.min(pause * (0.5 + math.random()), left))
    if not slept and not doubt then error(problem, 0) end
    if not slept then return nil, "in_doubt: " .. tostring(problem), "in_doubt", true end
    pause = math.min(pause * 2, 1)
  end
end

--- The results of a question. It has changed nothing if its answer was lost: `unreachable`, in place of `in_doubt`.
function acquiring.answer(result, message, code)
  if code ~= "in_doubt" then return result, message, code end
  return nil, (message:gsub("^in_doubt", "unreachable")), "unreachable"
end

local function doubtful(resource, mine, message)
  return nil, ("in_doubt: %s may be held, under the ticket %s: %s"):format(resource.words, mine, message), "in_doubt"
end

--- Ends what is held under a ticket, whoever has acquired it, or its waiting.
function acquiring.clear(store, resource, ticket)
  local outcome, since, code = acquiring.answer(store:step(resource, "verify", ticket))
  if outcome == nil then return nil, since, code end
  if outcome == "held" then return store:step(resource, "leave", ticket, since) end
  return store:step(resource, "withdraw", ticket)
end

-- A request: store, wait, resource, verb, ticket, is_new (the ticket is of this acquire alone), doubt (a step was in
-- doubt, of this acquire or of an earlier one of that ticket).

-- A writer that waits no longer lets the readers in. Without an answer its mark lapses after 10 seconds.
local function withdraw(request)
  if request.verb == "wait" then request.store:step(request.resource, "withdraw", request.ticket) end
end

-- Undoes a step in doubt. The database may still execute that step later. A ticket of the caller's own is not released,
-- as it may hold the lock from before.
local function clear(request)
  if not request.is_new then return withdraw(request) end
  return acquiring.clear(request.store, request.resource, request.ticket) == "released"
end

local function fail(request, message, code)
  if not request.doubt then
    withdraw(request)
    return nil, message, code
  end
  local fine, is_cleared = pcall(clear, request)
  if code == "in_doubt" then message = message:gsub("^in_doubt: ", "") end
  return doubtful(request.resource, request.ticket, message .. (fine and is_cleared and "; it was released" or ""))
end

-- "import 7 is held by import.lua@db1:4711.9a0c41f7d2e85b36"
local function standing(resource, holder) return ("%s is held by %s"):format(resource.words, holder) end

local function too_late(resource, holder, seconds, waits)
  if not waits then return "busy: " .. standing(resource, holder), "busy" end
  return ("timeout: after %g seconds %s"):format(seconds, standing(resource, holder)), "timeout"
end

-- After an error of on_wait nobody waits any more, and nobody is told the ticket.
local function report(request, on_wait, seconds, reason)
  local fine, problem = pcall(on_wait, seconds, reason)
  if fine then return end
  if request.doubt and request.is_new then
    clock.protected(request.wait.sleep, late.left(request.store, request.resource, request.ticket))
  end
  if request.doubt then clear(request) else withdraw(request) end
  error(problem, 0)
end

-- One attempt. What an earlier acquire of the caller's own ticket holds is taken over: a late step of that one does not
-- end it then.
local function attempt(request, wait)
  local function step(...)
    local outcome, detail, code, doubt = acquiring.step(request.store, wait, request.resource, ...)
    request.doubt = request.doubt or doubt
    return outcome, detail, code
  end
  local outcome, detail, code = step(request.verb, request.ticket)
  if outcome ~= "mine" then return outcome, detail, code end
  if request.is_new then return "held", detail end
  outcome, detail, code = step("adopt", request.ticket, detail)
  if outcome == "lost" then return attempt(request, wait) end
  return outcome, detail, code
end

--- Acquires. `verb` is "read" or "write". `how`, all checked: timeout (nil: without limit; 0: one step), poll, on_wait,
-- ticket (nil: the caller has none of its own).
-- Returns the time of the acquisition in milliseconds, or nil, message, code.
function acquiring.acquire(store, wait, resource, verb, ticket, how)
  local begun = wait.now()
  local waits = how.timeout ~= 0
  wait.deadline = how.timeout and begun + how.timeout
  if waits and verb == "write" then verb = "wait" end
  local request = {
    store = store, wait = wait, resource = resource, verb = verb, ticket = ticket, is_new = not how.ticket,
    doubt = late.left(store, resource, ticket) > 0,
  }
  function wait.trouble(message, doubt)
    request.doubt = request.doubt or doubt
    if how.on_wait then report(request, how.on_wait, wait.now() - begun, message) end
  end
  while true do
    local outcome, detail, code = attempt(request, wait)
    if outcome == "held" then return detail end
    if outcome == nil then return fail(request, detail, code) end
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if left <= 0 then return fail(request, too_late(resource, detail, how.timeout, waits)) end
    if how.on_wait then report(request, how.on_wait, wait.now() - begun, standing(resource, detail)) end
    local slept, problem = clock.protected(wait.sleep,
      math.min(how.poll * (0.5 + math.random()), left, verb == "wait" and REFRESH or math.huge))
    if not slept and request.doubt then return fail(request, tostring(problem), "in_doubt") end
    if not slept then
      withdraw(request)
      error(problem, 0)
    end
  end
end

return acquiring
