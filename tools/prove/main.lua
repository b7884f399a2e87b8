-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- `make prove`; see real.lua:
--     main.lua [seconds=300] [seed=N] [faults=a,b] [kind=a,b] [every=0.4] [quiet=10]
-- It starts a RabbitMQ of its own. If $AMQP_URL is set it uses that one, without the faults that need an operator.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local lfs = require "lfs"
local pools = require "tools.prove.pools"
local process = require "spec.support.process"
local real = require "tools.prove.real"
local settings = require "tools.prove.settings"

local function names(text)
  if not text then return nil end
  local list = {}
  for name in text:gmatch "[^,%s]+" do table.insert(list, name) end
  return list
end

local function by_name(list, field)
  local set = {}
  for _, one in ipairs(list) do set[field and one[field] or one] = true end
  return set
end

local function nodes()
  local url = os.getenv "AMQP_URL"
  if not url or url == "" then return { broker.start() } end
  local conn, message = amqplocks.connect(url)
  if not conn then settings.refuse("AMQP_URL: %s", message) end
  conn:close()
  return { { url = url } }
end

local given = {}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  given[name or error("not understood: " .. word, 0)] = value ~= "" and value or nil
end

local function directory_of(seed) return ("build/prove/%d"):format(seed) end

-- A seed without an existing directory: another run may have begun in the same second.
local function new_seed()
  local seed = os.time()
  while not lfs.mkdir(directory_of(seed)) do
    if not lfs.attributes "build/prove" then assert(lfs.mkdir "build/prove") else seed = seed + 1 end
  end
  return seed
end

local seconds = settings.seconds(given.seconds) or 300
local faults, kinds = names(given.faults), names(given.kind)
settings.check("fault", faults, by_name(real.faults(), "name"))
settings.check("kind of lock", kinds, by_name(pools.kinds))
local seed = settings.seed(given.seed) or new_seed()
local directory = directory_of(seed)
local again = ("make prove SEED=%d SECONDS=%g"):format(seed, seconds)
if faults then again = again .. " FAULTS=" .. table.concat(faults, ",") end
if kinds then again = again .. " KIND=" .. table.concat(kinds, ",") end
local used = nodes()
print(("seed %d: %s"):format(seed, again))
local fine, result = pcall(real.run, { nodes = used, directory = directory, seed = seed, seconds = seconds,
  every = tonumber(given.every), quiet = tonumber(given.quiet), faults = faults, kinds = kinds,
  say = print })
if used[1].remove then used[1]:remove() end
process.remove_modules()
if not fine then
  print(result)
  os.exit(2)
end
io.write(result.report)
print(("journals, report.txt and timeline.svg: %s"):format(directory))
os.exit(#result.findings.violations == 0 and 0 or 1)
