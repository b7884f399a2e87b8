-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Wrong arguments raise an error that says what is wanted; the broker is asked nothing. methods_spec has calls with a
-- dot, options_fuzz_spec the options of some functions with all that may be wrong with them.
local amqplocks = require "amqplocks"
local metrics = require "amqplocks.metrics"
local objects = require "spec.unit.lua.objects_scene"

local unpack = table.unpack or unpack

local all = objects()
local conn, admin, slots, mutex = all.Connection, all.Admin, all.Semaphore, all.Mutex

local function connect(_, ...) return amqplocks.connect(...) end
local function new_metrics(_, ...) return metrics.new(...) end
local function nothing() end

local LOCKS = "all: a list of locks must be given, "
local URL = "connect: the URL must be a string, a list of strings without holes, or a function that returns either"
local COUNT = "acquire: option count must be a whole number from 1 to 65535"

-- Words of the error, the object and its method, or a function and false, and one or more lists of arguments.
local ROWS = {
  { LOCKS .. "not nil", conn, "all", {} },
  { LOCKS .. "without holes or other keys", conn, "all", { {} }, { { mutex, x = 1 } }, { { mutex, nil, mutex } } },
  { "all: lock 2 must be a mutex or another kind of lock, not x", conn, "all", { { mutex, "x" } } },
  { "reader() or writer()", conn, "all", { { mutex, all.RWLock } } },
  { "all: lock 1 must be", conn, "all", { { conn } } },
  { 'acquire: unknown option "count"', all.All, "acquire", { { count = 2 } } },
  { "try_acquire: unknown option", all.All, "try_acquire", { { timeout = 2 } } },
  { "with: a function must be given", all.All, "with", {} },
  { "with: a function must be given, not nil", slots, "with", {} },
  { "with: a function must be given, not string", slots, "with", { {}, "work" } },
  { COUNT, slots, "acquire", { { count = 0 } }, { { count = 1.5 } }, { { count = -1 } }, { { count = 65536 } },
    { { count = "x" } } },
  { 'unknown option "count"', mutex, "acquire", { { count = 2 } } },
  { 'unknown option "count"', conn:mutex("a", { persistent = true }), "acquire", { { count = 2 } } },
  { 'unknown option "count"', all.FastMutex, "acquire", { { count = 2 } } },
  { 'unknown option "count"', all.Side, "acquire", { { count = 2 } } },
  { "semaphore: the name must be a string, not nil", conn, "semaphore", {} },
  { "semaphore: the name holds a control character", conn, "semaphore", { "two\nlines" } },
  { 'semaphore: options must be a table, not "fast"', conn, "semaphore", { "x", "fast" } },
  { "option reentrant must be true or false", conn, "mutex", { "x", { reentrant = 1 } } },
  { "option owner needs reentrant", conn, "mutex", { "x", { owner = 1 } } },
  { "owner must be another value than NaN, not", conn, "mutex", { "x", { reentrant = true, owner = 0 / 0 } } },
  { "downgrade: only a lock that writes", all.Entry, "downgrade", {} },
  { "unknown option", conn, "fast_mutex", { "x", { reentrant = true } } },
  { 'queue_type = "quorum", fenced = true', conn, "fast_mutex", { "x", { fenced = true } } },
  { 'queue_type = "quorum"', conn, "token_semaphore", { "x", { fenced = true } } },
  { "revoke: the holder of fast mutex", all.FastMutex, "revoke", {} },
  { "forget_fence: fast mutex", all.FastMutex, "forget_fence", {} },
  { "elect: a function must be given", conn, "elect", { "x" } },
  { "elect: the name is empty", conn, "elect", { "", nothing } },
  { "elect: unknown option", conn, "elect", { "x", { timeout = 1 }, nothing } },
  { "elect: option stop must be", conn, "elect", { "x", { stop = true }, nothing } },
  { "on_event: the callback must be a function", conn, "on_event", {} },
  { URL .. ", not 5672", connect, false, { 5672 } },
  { URL, connect, false, { true }, { { 1 } }, { { "amqp://h", nil, "amqp://h" } }, { { url = "amqp://h" } },
    { io.stdout } },
  { "option tls needs an amqps:// URL", connect, false, { "amqp://localhost", { tls = {} } } },
  { 'one of "listed", "random"', connect, false, { "amqp://localhost", { order = "sorted" } } },
  { "metrics.new: option buckets must be a list of numbers of seconds", new_metrics, false, { { buckets = {} } },
    { { buckets = { 1, 1 } } }, { { buckets = { 2, 1 } } }, { { buckets = { "x" } } }, { { buckets = 5 } } },
  { "metrics.new: option label must be a function", new_metrics, false, { { label = 1 } } },
  { "metrics.new: unknown option", new_metrics, false, { { bucket = 1 } } },
  { "revoke: the slot", admin, "revoke", { 0 }, { 1.5 }, { 65536 }, { 0 / 0 }, { "1" }, { {} } },
  { "wait_released: a slot", admin, "wait_released", { { 1, 0 } }, { { 1, 1.5 } }, { { 1, 65536 } }, { { 1, 0 / 0 } },
    { { 1, "1" } } },
  { "wait_released: slots", admin, "wait_released", { 3 }, { { nil, 2 } }, { { slot = 2 } } },
  { "the name", conn, "admin", {} },
  { "admin: ", conn, "admin", { "" }, { ("n"):rep(231) }, { "amq.lock" }, { 5 }, { true } },
}

for _, action in ipairs { "create", "add", "remove", "resize" } do
  table.insert(ROWS, { action .. ": the number of slots", admin, action, {}, { -1 }, { 1.5 }, { 65536 }, { 2 ^ 53 },
    { math.huge }, { 0 / 0 }, { "3" }, { true }, { {} }, action ~= "resize" and { 0 } or nil })
end

for _, row in ipairs(ROWS) do
  local words, object, method = unpack(row, 1, 3)
  it(("wrong arguments%s raise an error: %s"):format(method and " of " .. method or "", words), function()
    for i = 4, #row do
      local fine, problem = pcall(method and object[method] or object, object, unpack(row[i], 1, 3))
      assert.is_false(fine)
      assert.matches(words, problem, 1, true)
    end
  end)
end
