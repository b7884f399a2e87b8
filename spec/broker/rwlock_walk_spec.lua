-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Eight processes acquire and release one readers–writer lock at random: to read, to write, to write and continue as a
-- reader. They are stopped for a moment, or killed and replaced, at any time. The witness is a file: a holder appends a
-- line after it has acquired the lock, and one before it releases it. A process that is to be killed counts as having
-- left just before that. So two holders that overlap in the file did overlap, alive.
--
-- Before RabbitMQ 4.3 a client that dies while it claims a lock can take the queue of the lock's holder with it. The
-- holder keeps the lock until it asks the broker, which downgrade() does: it then returns `lost`, and releases the lock
-- (docs/reliability.md). Such a holder counts as having left when it called downgrade().
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local SEATS = 8
local SECONDS = os.getenv "AMQPLOCKS_SOAK" and 300 or 10

local WALK = [[
  local walker, kind, name = require "spec.support.programs.walker", ...
  return walker.walk(spec, kind == "none" and walker.no_locks() or walker.locks(conn, name), select(3, ...))
]]

local function random(most) return math.random() * most end

-- The witness -------------------------------------------------------------------------------------------------------

local witness = {}
witness.__index = witness

function witness.new()
  local self = setmetatable({ path = os.tmpname() }, witness)
  stage.undo(function() os.remove(self.path) end)
  self.log = assert(io.open(self.path, "a"))
  return self
end

function witness:killed(one)
  self.log:write(("killed %d %d\n"):format(one.seat, one.pid))
  self.log:flush()
end

local function others(inside, pid)
  local list = {}
  for other, what in pairs(inside) do
    if other ~= pid then table.insert(list, ("%s (%s)"):format(other, what)) end
  end
  return #list, table.concat(list, ", ")
end

-- Notes that a process is inside to "read" or to "write", and checks that it may be there beside the others.
local function enter(inside, what, pid, number)
  local count, list = others(inside, pid)
  for other, kind in pairs(inside) do
    local together = other ~= pid and (what == "write" or kind == "write")
    assert.is_false(together, ("line %d: %s came in to %s beside %s"):format(number, pid, what, list))
  end
  inside[pid] = what
  return count + 1
end

--- The seat of the process that wrote the last line. If that line says that it came in, it is most likely inside.
function witness:last()
  local file = assert(io.open(self.path))
  file:seek("end", -math.min(file:seek "end", 200))
  local what, seat = file:read("*a"):match "([%a-]+) (%d+) %d+\n$"
  file:close()
  return tonumber(seat), what
end

-- The lines of the file, and of these the "reads-on" that a "robbed" of the same process follows.
local function read(path)
  local lines, robbed, last = {}, {}, {}
  for line in io.lines(path) do
    local what, pid = line:match "^([%a-]+) %d+ (%d+)$"
    table.insert(lines, line)
    if what == "robbed" then robbed[last[pid]] = true end
    last[pid] = #lines
  end
  return lines, robbed
end

--- Reads the file: never a writer with anybody else. Gives how often each seat came in, by what it came for, and how
-- many were killed inside; and the most that were inside together.
function witness:testimony()
  local inside, dead, most = {}, {}, 0
  local counts = { read = {}, write = {}, ["reads-on"] = {}, refused = {}, killed = {}, robbed = {}, victims = 0 }
  local lines, robbed = read(self.path)
  for number, line in ipairs(lines) do
    local what, seat, pid = line:match "^([%a-]+) (%d+) (%d+)$"
    local is_there = not dead[pid]
    if is_there and counts[what] then counts[what][seat] = (counts[what][seat] or 0) + 1 end
    if what == "killed" then
      counts.victims = counts.victims + (inside[pid] and 1 or 0)
      inside[pid], dead[pid] = nil, true
    elseif is_there and (what == "read" or what == "write") then
      assert.is_nil(inside[pid], line)
      most = math.max(most, enter(inside, what, pid, number))
    elseif is_there and what == "reads-on" then
      assert.equal("write", inside[pid], line)
      inside[pid] = not robbed[number] and "read" or nil
    elseif is_there and what == "leaves" then
      assert.is_truthy(inside[pid], line)
      inside[pid] = nil
    end
  end
  assert.is_nil((next(inside)))
  return counts, most
end

-- The walk ----------------------------------------------------------------------------------------------------------

local function sit(seats, seat, kind, name, log)
  local one = stage.process(name)
  one.seat = seat
  local may_be_robbed = not client.shared():since(4, 3)
  one:begin(WALK, kind, name, log.path, seat, one.pid, 0.006, math.random(2 ^ 30), may_be_robbed)
  seats[seat] = one
end

local function stop(one)
  one:signal("STOP")
  socket.sleep(random(0.04))
end

local function replace(seats, one, name, log)
  log:killed(one)
  one:kill()
  one:forget()
  sit(seats, one.seat, "rwlock", name, log)
end

local function disturb(seats, name, log)
  local chance, one = math.random(), seats[math.random(#seats)]
  if chance < 0.1 then
    replace(seats, seats[log:last()] or one, name, log)
  elseif chance < 0.2 then
    stop(one)
    replace(seats, one, name, log)
  elseif chance < 0.8 then
    stop(one)
    one:signal("CONT")
  else
    socket.sleep(random(0.05))
  end
end

local function look_after(seats)
  for _, one in ipairs(seats) do
    if one:finished() then error(one:output() .. tostring(one:finish()), 0) end
  end
end

local function finish(seats)
  for _, one in ipairs(seats) do one:begin("return true") end
  for _, one in ipairs(seats) do
    assert.is_true(one:finish(100))
    one:finish()
  end
end

local function walk(kind, seats, seconds)
  local name, log, all = gate.name(), witness.new(), {}
  for seat = 1, seats do sit(all, seat, kind, name, log) end
  local deadline = socket.gettime() + seconds
  while socket.gettime() < deadline do
    if kind == "none" then socket.sleep(0.05) else disturb(all, name, log) end
    look_after(all)
  end
  finish(all)
  for _, one in ipairs(all) do one:kill() end
  return log, name
end

-- What a walk should have shown, and has not, if anything.
local function missing(counts, most)
  for seat = 1, SEATS do
    for _, kind in ipairs{ "read", "write" } do
      if not counts[kind][tostring(seat)] then return ("%d never came in to %s"):format(seat, kind) end
    end
  end
  return most < 2 and "no two were inside together" or counts.victims == 0 and "nobody was killed inside"
end

after_each(stage.clear)
teardown(stage.check)

describe("processes that walk in and out at random", function()
  it("are never inside beside one that writes, whoever is stopped or killed; all come in, nothing is left", function()
    math.randomseed(os.time())
    local seconds = SECONDS / 2
    until_true(function()
      seconds = 2 * seconds
      local log, name = walk("rwlock", SEATS, seconds)
      local what = missing(log:testimony())
      gate.until_free("read", name)
      gate.until_free("write", name)
      assert.is_true(gate.take("write", name, { timeout = 20 }):release())
      return not what, what
    end, 120)
  end)

  it("would be seen if nothing held them back", function()
    local seconds = 0.15
    until_true(function()
      seconds = 2 * seconds
      local log = walk("none", 3, seconds)
      local fine, problem = pcall(log.testimony, log)
      if not fine then assert.matches("came in to", tostring(problem.message or problem), 1, true) end
      return not fine
    end)
  end)
end)
