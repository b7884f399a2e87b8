-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Chooses the driver, which moves a connection's bytes: by name, a table of the program (docs/drivers.md), or by
-- default the one for the place.
local drivers = {}

--- What docs/drivers.md asks of the table of a program's own event loop. Times are seconds; nil: for ever.
---@class amqplocks.Loop
---@field connect fun(host: string, port: integer, tls: amqplocks.LoopTls?, seconds: number): amqplocks.LoopSocket?,
---  string?, ("unreachable"|"tls")?
---@field condition fun(): amqplocks.LoopCondition
---@field spawn fun(fn: fun()): any, string?
---@field resolve? fun(host: string, seconds: number?): string[]?, string?
---@field check? fun(): string?, amqplocks.Code?
---@field here? fun(): amqplocks.Loop

---@class amqplocks.LoopTls
---@field server_name string
---@field verify boolean
---@field ca? string
---@field cert? string
---@field key? string

---@class amqplocks.LoopSocket
---@field read fun(self: amqplocks.LoopSocket, seconds: number?): string?, string?
---@field write fun(self: amqplocks.LoopSocket, bytes: string, seconds: number?): true?, string?
---@field close fun(self: amqplocks.LoopSocket)

---@class amqplocks.LoopCondition
---@field wait fun(self: amqplocks.LoopCondition, seconds: number?)
---@field signal fun(self: amqplocks.LoopCondition)

local LOOPS = { cqueues = "amqplocks.drivers.cqueues", luv = "amqplocks.drivers.luv" }
local OFFERS = { "connect", "condition", "spawn" }

--- Returns nil if `driver` is valid, otherwise what it must be.
function drivers.check(driver)
  if driver == "native" or driver == "resty" or LOOPS[driver] then return nil end
  if type(driver) ~= "table" then return 'one of "native", "resty", "cqueues", "luv", or a table' end
  for _, name in ipairs(OFFERS) do
    if type(driver[name]) ~= "function" then return ("a table with a function %s"):format(name) end
  end
end

local function by_place() return rawget(_G, "ngx") and ngx.socket and "resty" or "native" end

--- Returns a session over `settings`, and the driver that waits for its operations. `driver`: nil for the default.
function drivers.session(driver, settings)
  driver = driver or by_place()
  if driver == "resty" then return require("amqplocks.drivers.resty").session(settings) end
  if driver == "native" then return require("amqplocks.drivers.native").session(settings) end
  local loop = require "amqplocks.drivers.loop"
  return loop.session(LOOPS[driver] and require(LOOPS[driver]) or driver, settings)
end

return drivers
