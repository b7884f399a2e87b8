-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The journal of a process of `make prove`: a line before each act and one after it, each in one write, so that the
-- journal of a killed process is valid up to its last line. All journals use one clock, that of the machine, which no
-- process sets.
--
--     local writing = journal.open(directory, "client-3.1")
--     writing:note("ask", { op = 7, pool = "mutex", within = 2 })
--     local records = journal.read(directory .. "/client-3.1")    -- { { at =, act = "ask", lane =, op = 7, … }, … }
--     journal.read_all(directory)                                 -- of all lanes, in the order of time
--
-- A lane is the life of one caller: a process, or a coroutine of one. A line is the time, the act, and `name=value` for
-- each field, separated by tabs. An incomplete last line is ignored.
local journal = {}
journal.__index = journal

local clock

--- Loads the clock, a C module; see spec/support/process.lua, c_module "clock".
function journal.use(cpath)
  clock = assert(package.loadlib((cpath:gsub("%?%.so;$", "clock.so")), "luaopen_clock"))()
end

function journal.now() return clock.now() end

--- Opens the journal of a lane for writing.
function journal.open(directory, lane)
  local file = assert(io.open(directory .. "/" .. lane, "a"))
  file:setvbuf("no")
  return setmetatable({ file = file, lane = lane, ops = 0 }, journal)
end

local function text(value)
  if type(value) == "number" then return (value % 1 == 0 and "%d" or "%.7f"):format(value) end
  return (tostring(value):gsub("%c", " "))
end

--- Writes a line, and returns its time.
function journal:note(act, fields)
  local words, at = {}, clock.now()
  for name, value in pairs(fields or {}) do table.insert(words, name .. "=" .. text(value)) end
  table.sort(words)
  table.insert(words, 1, ("%.7f\t%s"):format(at, act))
  self.file:write(table.concat(words, "\t") .. "\n")
  return at
end

--- A number for an act, unique in this lane.
function journal:number()
  self.ops = self.ops + 1
  return self.ops
end

function journal:close() self.file:close() end

-- Reading -----------------------------------------------------------------------------------------------------------

local TEXTS = { ticket = true, permit = true, about = true, message = true, pool = true }

local function record(lane, line)
  local at, act, rest = line:match "^([%d.]+)\t(%S+)(.*)$"
  if not at then error(("%s: no line of a journal: %s"):format(lane, line), 0) end
  local result = { at = tonumber(at), act = act, lane = lane }
  for name, value in rest:gmatch "\t([%w_]+)=([^\t]*)" do
    result[name] = not TEXTS[name] and tonumber(value) or value
  end
  return result
end

--- The records of one lane, from its text.
function journal.parse(lane, lines)
  local records = {}
  for line in lines:gmatch "([^\n]*)\n" do
    table.insert(records, record(lane, line))
  end
  return records
end

function journal.read(path)
  local file = assert(io.open(path, "rb"))
  local lines = file:read "*a"
  file:close()
  return journal.parse(path:match "[^/]+$", lines)
end

--- Merges the records of several lanes in the order of time; records of one lane keep their order.
function journal.merge(lists)
  local all = {}
  for _, list in ipairs(lists) do
    for _, one in ipairs(list) do
      table.insert(all, one)
      one.order = #all
    end
  end
  table.sort(all, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    return a.order < b.order
  end)
  return all
end

function journal.read_all(directory)
  local names, lists = {}, {}
  for name in require("lfs").dir(directory) do
    if name:sub(1, 1) ~= "." then table.insert(names, name) end
  end
  table.sort(names)
  for i, name in ipairs(names) do lists[i] = journal.read(directory .. "/" .. name) end
  return journal.merge(lists)
end

return journal
