-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- Seven workers share a semaphore of three slots, while an administrator resizes it and one worker is killed. The demo
-- draws and checks what happens. `make demo` runs it with a broker of its own. Without make it uses the broker at
-- AMQP_URL, or on localhost.
--
-- Workers (worker.lua) and administrator (admin.lua) are processes that write what they do to one pipe. This process
-- reads the pipe, records everything in a ledger (ledger.lua), draws it (lanes.lua), and directs the story below. It
-- does not use amqplocks itself: it shows and checks what happened to the others.

package.path = (arg[0]:match "^.*/" or "./") .. "?.lua;" .. package.path

local crews = require "crew"
local lanes = require "lanes"
local ledgers = require "ledger"
local terminal = require "terminal"

local SLOTS, WORKERS = 3, "A B C D E F G"
local PATIENCE = 60 -- seconds that the whole story may take

local introduction = "Seven workers, A to G, each a process of its own, share the 3 slots of a semaphore in RabbitMQ. "
  .. "Watch which worker holds which slot, and how many wait. An administrator adds a slot; one worker is killed with "
  .. "SIGKILL, and another takes over; two slots are removed while they are held, and their holders finish their work. "
  .. "The demo takes 20 seconds, and ends with a check of the log of all processes."

-- ---- the story ------------------------------------------------------------------------------------------------------

-- Waits, within the story. The story is a coroutine that each tick of the clock resumes; it yields what it waits for.
local function await(what, condition)
  local found = condition()
  while not found do
    coroutine.yield(what)
    found = condition()
  end
  return found
end

local function tell(crew, ledger)
  local function pause(seconds)
    local over = ledger.now + seconds
    await("the time to pass", function() return ledger.now >= over end)
  end
  local function resize(action, slots)
    crew:administer(action)
    await("the administrator", function() return ledger.slots == slots end)
  end
  local function busy(slots)
    await("all slots to be held", function() return ledger:holders() == slots end)
  end
  local function is_fresh(slot) return ledger:held_for(slot) > 0.2 and ledger:held_for(slot) < 1.3 end

  busy(SLOTS)
  pause(3.5)
  resize("add 1", SLOTS + 1)
  busy(SLOTS + 1)
  pause(3)

  local victim = await("a worker to begin work", function()
    return is_fresh(1) and ledger:held(1) or is_fresh(2) and ledger:held(2)
  end)
  crew:kill(ledger.workers[victim.who])
  await("the slot of the killed worker to be taken over", function() return ledger.kill and ledger.kill.by end)
  pause(1.5)

  await("two workers to begin work", function() return is_fresh(3) and is_fresh(4) end)
  resize("remove 2", SLOTS - 1)
  await("the removed slots to be released", function() return ledger:settled() end)
  busy(SLOTS - 1)
  pause(3.5)
end

-- ---- running the story
-- -----------------------------------------------------------------------------------------------

local function perform(crew, ledger, view)
  local story = coroutine.create(tell)
  for line, now in crew:lines() do
    ledger:read(line, now)
    view:draw(ledger, now, line)
    if line == "" then
      if #ledger.problems > 0 then return end
      local fine, awaited = coroutine.resume(story, crew, ledger)
      if not fine then error(awaited, 0) end
      if not awaited then return end -- the story is over
      if now > PATIENCE then return ledger:problem("timed out waiting for %s", awaited) end
    end
  end
  ledger:problem("the workers have ended")
end

local function report(ledger)
  local problems, phases, kill = ledger:verdict(), ledger.phases, ledger.kill
  if #problems > 0 then return "FAILED:\n" .. table.concat(problems, "\n") end
  local most = ("at most %d at once of %d slots, %d of %d with one added, %d of %d when the removed ones were released")
    :format(phases[1].most, phases[1].slots, phases[2].most, phases[2].slots, phases[3].most, phases[3].slots)
  return ([[
%d acquisitions, never more holders than slots: %s.
%d holders of removed slots finished their work first.
When %s was killed, RabbitMQ freed slot %d, and %s had it within %.2f s.]])
    :format(ledger.acquisitions, most, ledger.outlasted, kill.who, kill.slot, kill.by, kill.after + 0.01)
end

local rows, columns = terminal.size()
local view = rows and lanes.new(rows, columns) or terminal.lines()
local function say(text) print(terminal.fold(text, columns or 120) .. "\n") end

say(introduction)
say(view:legend())
local crew, ledger = crews.new(SLOTS, WORKERS), ledgers.new()
-- Ctrl-C makes the read fail, and then Lua says "interrupted!" when the inner pcall returns.
local calm, fine, trouble = pcall(pcall, perform, crew, ledger, view)
local dismissed = crew:dismiss()
if not calm then
  ledger:problem("interrupted")
elseif not fine then
  ledger:problem("%s", trouble)
end
if not dismissed then ledger:problem("the semaphore could not be destroyed") end
print()
say(report(ledger))
os.exit(#ledger.problems == 0 and 0 or 1)
