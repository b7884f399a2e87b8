-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Releases several locks. All releases are begun, and written, before the first one is waited for, and before any
-- function of the program is called. So neither an error nor the end of the coroutine keeps a lock from being released.
-- Each is confirmed, a permit, too: one round trip is little beside what it took to acquire several.
local await = require "amqplocks.waiting.await"
local guard = require "amqplocks.waiting.guard"
local news = require "amqplocks.waiting.notify"
local pcall = require("amqplocks.compat.pcall").pcall

local function call(drivers, name)
  for _, driver in ipairs(drivers) do
    if driver[name] then pcall(driver[name]) end
  end
end

local function drivers_of(list)
  local drivers, seen = {}, {}
  for _, one in ipairs(list) do
    local driver = one._connection._driver
    if not seen[driver] then table.insert(drivers, driver) end
    seen[driver] = true
  end
  return drivers
end

-- For await(), which is not to wait yet.
local function begin(lock, ending)
  local message, code
  ending.lock = lock
  ending.operation, message, code = lock._core:give_back()
  return false, nil, message, code
end

-- What guard.call() protects.
local begun = {}
begun.__index = begun

function begun:drop()
  for _, ending in ipairs(self) do
    if ending.operation then ending.operation:drop() end
  end
  call(self.drivers, "mind")
end

begun.__close = begun.drop

local function begin_all(list)
  local endings = setmetatable({ drivers = drivers_of(list) }, begun)
  for i = #list, 1, -1 do
    local ending = { of = list[i], driver = list[i]._connection._driver }
    table.insert(endings, ending)
    ending.released, ending.message, ending.code = list[i]:_release(begin, ending)
  end
  call(endings.drivers, "mind")
  return endings
end

local function operation_of(ending) return ending.operation end

local function finish_all(_, endings)
  local first
  for _, ending in ipairs(endings) do
    if ending.operation then
      local fine, released, message, code = pcall(await, ending.driver, nil, operation_of, ending)
      if fine then ending.released, ending.message, ending.code = released, message, code end
      first = first or not fine and { released } or nil
    end
    if ending.lock then ending.lock:_ended(ending.released, ending.code) end
  end
  for _, driver in ipairs(endings.drivers) do
    if driver.listened then news.tell_events(driver) end
  end
  if first then error(first[1], 0) end
end

local NONE = {} -- each lock has a driver of its own

local release = {}

--- Releases the locks without waiting, the last one first. Raises no error.
function release.leave(list)
  for i = #list, 1, -1 do pcall(list[i]._leave, list[i]) end
end

--- Releases the locks, the last one first. Returns a list of what has become of them, in that order: `of` (the lock),
-- `released`, `message` and `code`. An error is raised when all of them are released: the first one, if there are
-- several.
function release.all(list)
  local fine, endings = pcall(begin_all, list)
  if not fine then -- an interrupt, or no memory
    release.leave(list)
    error(endings, 0)
  end
  local problem
  fine, problem = guard.call(finish_all, NONE, endings)
  if not fine then error(problem, 0) end
  return endings
end

--- The same at the end of a scope. Raises no error, and releases without waiting where nothing can wait.
function release.close(list)
  pcall(release.all, list)
  release.leave(list)
end

return release
