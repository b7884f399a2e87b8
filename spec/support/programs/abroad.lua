-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Prints what both rocks make of texts and numbers for other programs, brokers and databases, under strict globals:
--   lua abroad.lua LOCALE MODULE...
-- The output is to be the same under every locale. The modules are loaded first; what they need may be missing.
assert(os.setlocale(arg[1]))
-- Letters of ISO-8859-1.
arg[0] = "/tmp/na\239ve-\228\214.lua" -- luacheck: ignore 122
require "spec.support.programs.strict"
for i = 2, #arg do
  local fine, why = pcall(require, arg[i])
  assert(fine or why:find("module '[^']*' not found"), why)
end

local dblocks = require "dblocks"
local dialects = require "dblocks.dialects"
local metrics = require("amqplocks.metrics").new()
local sql_rows = require "dblocks.sql_rows"
local world = require("amqplocks.testing").new()

local function accepted(fn, ...)
  local bytes = {}
  for byte = 0, 255 do
    if pcall(fn, string.char(byte), ...) then table.insert(bytes, byte) end
  end
  print(table.concat(bytes, " "))
end

metrics.observe { what = "acquired", kind = "mutex", name = "db", waited = 0.0125 }
metrics.observe { what = "released", kind = "mutex", name = "db", held = 1e-7 }
print(metrics.text())

local conn = world:connect()
local locks = {}
for _, name in ipairs { "a", "B", "_", "i", "I", "ä", "z", "Z" } do table.insert(locks, conn:mutex(name)) end
assert(conn:all(locks):try_acquire()):release()
for _, entry in ipairs(world:log()) do print(entry.what, entry.name) end

local client = {}

function client:execute(statement)
  self.last = statement
  print((statement:gsub(("%x"):rep(16), "revision")))
  return { { now = 1700000000123, ["[applied]"] = true } }
end

function client:eval(_, keys, ...)
  self.asked = table.concat({ keys, ... }, " ")
  print(self.asked)
  local mark = select(keys + 1, ...)
  if keys == 0 then return { mark, "1700000000123" } end
  return { mark, "held", "1700000000123" }
end

local function clock() return 0 end -- what has passed is added to the database's time

local redis = dblocks.redis(client, { clock = clock, sleep = print })
assert(redis:mutex("type", 7):try_acquire { ticket = "mine" })

local cassandra = dblocks.cassandra(client, { table = "KEYS_I.MUTEXES", clock = clock, sleep = print })
assert(cassandra:setup())
assert(cassandra:mutex("type", 7):try_acquire { ticket = "mine" })
print((cassandra.name:gsub("%d+$", "pid")))

accepted(function(byte) cassandra:mutex("x" .. byte, 1) end)
accepted(function(byte) dblocks.cassandra(client, { table = byte .. "x.x" }) end)
accepted(function(byte) dblocks.cassandra(client, { table = "x.x" .. byte }) end)
accepted(function(byte) dblocks.sql(client, { dialect = "sqlite", table = "x" .. byte }) end)

print(require("dblocks.sql").statement("mariadb", "mutexes"))
for _, time in ipairs { 1700000000123, "1700000000123", "1700000000123.456" } do
  print(sql_rows.values(sql_rows.parsed("readers", time, "one,124 two,125", "three,126", "9")))
end
print(sql_rows.parsed("readers", 17, "\228,17") == nil)
dialects.sqlite.unsafe(function(statement) print(statement) end, "MAIN.MUTEXES_I")
