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

--- Steps that are repeated after a failure of the connection, by another one, and after lost races.
--
-- `wait` has now(), sleep(seconds) or none, and `deadline` by that clock (nil: without limit). Before each repetition
-- after a failure wait.trouble(message, doubt) is called, if it is there, and before the first one wait.log("warning",
-- message). Returns what the store's step does, and whether a step was in doubt.
function acquiring.step(store, wait, resource, verb, mine, is_reader)
  local doubt, pause = false, PAUSE
  while true do
    local outcome, message, code = store:step(resource, verb, mine, is_reader)
    doubt = doubt or code == "in_doubt"
    local is_broken = outcome == nil and (code == "in_doubt" or code == "unreachable")
    local is_repeated = is_broken and store:renews() or code == "contended"
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if not is_repeated or not wait.sleep or left <= 0 then return outcome, message, code, doubt end
    if is_broken and pause == PAUSE and wait.log then wait.log("warning", message) end
    if is_broken and wait.trouble then wait.trouble(message, doubt) end
    wait.sleep(math.min(pause * (0.5 + math.random()), left))
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

-- A request: store, resource, verb, ticket, is_new (the ticket is of this acquire alone), doubt (a step was in doubt).

-- A writer that waits no longer lets the readers in. Without an answer its mark lapses after 10 seconds.
local function withdraw(request)
  if request.verb == "wait" then request.store:step(request.resource, "withdraw", request.ticket) end
end

-- Undoes a step in doubt. The database may still execute that step later. A ticket of the caller's own is not released,
-- as it may hold the lock from before.
local function clear(request)
  if not request.is_new then return withdraw(request) end
  return request.store:step(request.resource, "leave", request.ticket) == "released"
end

local function fail(request, message, code)
  if not request.doubt then
    withdraw(request)
    return nil, message, code
  end
  local is_cleared = clear(request)
  if code == "in_doubt" then message = message:gsub("^in_doubt: ", "") end
  return doubtful(request.resource, request.ticket, message .. (is_cleared and "; it was released" or ""))
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
  if request.doubt then clear(request) else withdraw(request) end
  error(problem, 0)
end

--- Acquires. `verb` is "read" or "write". `how`, all checked: timeout (nil: without limit; 0: one step), poll, on_wait,
-- ticket (nil: the caller has none of its own).
-- Returns the time of the acquisition in milliseconds, or nil, message, code.
function acquiring.acquire(store, wait, resource, verb, ticket, how)
  local begun = wait.now()
  local waits = how.timeout ~= 0
  wait.deadline = how.timeout and begun + how.timeout
  if waits and verb == "write" then verb = "wait" end
  local request
  function wait.trouble(message, doubt)
    request.doubt = request.doubt or doubt
    if how.on_wait then report(request, how.on_wait, wait.now() - begun, message) end
  end
  request = { store = store, resource = resource, verb = verb, ticket = ticket, is_new = not how.ticket }
  while true do
    local outcome, detail, code, doubt = acquiring.step(store, wait, resource, verb, ticket)
    request.doubt = request.doubt or doubt
    if outcome == "held" then return detail end
    if outcome == nil then return fail(request, detail, code) end
    local left = wait.deadline and wait.deadline - wait.now() or math.huge
    if left <= 0 then return fail(request, too_late(resource, detail, how.timeout, waits)) end
    if how.on_wait then report(request, how.on_wait, wait.now() - begun, standing(resource, detail)) end
    wait.sleep(math.min(how.poll * (0.5 + math.random()), left, verb == "wait" and REFRESH or math.huge))
  end
end

return acquiring
