-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Elections: the holder of a mutex leads. A client that has lost the mutex stands again.
local acquiring = require "amqplocks.acquiring"
local mutex = require "amqplocks.mutex"
local options = require "amqplocks.options"
local pcall = require("amqplocks.compat.pcall").pcall
local scope = require "amqplocks.scope"

local checks = options.checks

local schema = {
  fenced = checks.boolean,
  priority = acquiring.schema.priority,
  on_wait = checks.callable,
  stop = checks.callable,
}

---@class amqplocks.ElectOptions
---@field fenced? boolean lock.fence is the number of the term, larger than that of every earlier leader (false)
---@field priority? integer as for acquire (0)
---@field on_wait? fun(seconds: number, reason: string) as for acquire
---@field stop? fun(): boolean? called before each wait, and about every second of it; after true the election is over

local unpack = table.unpack or rawget(_G, "unpack")

-- The ends of a term, or of a lock that was lost before its term began, after which a client stands again.
local AGAIN = { lost = true, suspect = true, contended = true }

local STOP = setmetatable({}, { __tostring = function() return "conn:elect was stopped" end })

-- An error in on_wait ends the wait.
local function while_waiting(opts)
  if not opts.stop then return opts.on_wait end
  return function(...)
    if opts.stop() then error(STOP, 0) end
    if opts.on_wait then opts.on_wait(...) end
  end
end

local function pack(...) return { n = select("#", ...), ... } end

local function stand(office, opts, fn, ...)
  local waits = { patient = true, priority = opts.priority, on_wait = while_waiting(opts) }
  while not (opts.stop and opts.stop()) do
    local results = pack(pcall(office.with, office, waits, fn, ...))
    local fine, had, code = results[1], results[2], results[4]
    if not fine and had == STOP then break end
    if not fine then error(had, 0) end
    if had or not AGAIN[code] then return unpack(results, 2, results.n) end
  end
  return true
end

local function run(connection, name, opts, fn, ...)
  opts = options.check(opts or {}, schema, "elect")
  return stand(mutex.new(connection, name, { fenced = opts.fenced }), opts, fn, ...)
end

local elect = {}

--- Stands for election until it is over; see conn:elect.
function elect.run(connection, name, ...) return run(connection, name, scope.split("elect", schema, ...)) end

return elect
