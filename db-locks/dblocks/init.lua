-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks: mutexes and readers–writer locks in a database that is there anyway: Redis, PostgreSQL, MariaDB, SQLite,
-- Oracle, Cassandra. A crash does not free such a lock: a person decides about it. See docs/dblocks.md.
--
--     local dblocks = require "dblocks"
--     local locks = dblocks.redis(function() return redis.connect("127.0.0.1", 6379) end)
--     local lock = assert(locks:mutex("import", 7):acquire { timeout = 60 })
--     ...
--     assert(lock:release())
--
-- Failures are returned: nil, message, code. Programming errors raise an error that names the argument. Seconds
-- everywhere.
local acquiring = require "dblocks.acquiring"
local clock = require "dblocks.clock"
local lock = require "dblocks.lock"
local options = require "dblocks.options"
local ticket = require "dblocks.ticket"

local checks = options.checks

---@alias dblocks.Code
---| "timeout" others held it for so long
---| "busy" others hold it
---| "contended" others changed it during each of 64 attempts
---| "lost" it is not there under this ticket: an operator broke the lock, or the data is gone
---| "not_held" it was released before; or nothing is held under that ticket
---| "closed" locks:close() was called
---| "unreachable" there is no connection, and nothing was changed
---| "in_doubt" the answer was lost: the change may have been made, or may still be made
---| "refused" the database has answered with an error, and changed nothing
---| "unsafe" the database may drop locks as it is set up
---| "in_transaction" the connection has an open transaction, so nothing may be changed

local Locks = {}
local metatable = { __index = Locks, __name = "dblocks.locks" }

function metatable.__tostring(self) return ("dblocks.locks (%s)"):format(self.name) end

-- Mutexes and readers–writer locks ------------------------------------------------------------------------------------

---@class dblocks.Mutex
---@field try_acquire fun(self, opts?: { ticket?: string }): dblocks.Lock|nil, string?, dblocks.Code? one attempt
---@field acquire fun(self, opts?: dblocks.AcquireOptions): dblocks.Lock|nil, string?, dblocks.Code? waits
---@field with fun(self, ...): true|nil, ...any [opts,] fn, …: acquires, calls fn(lock, …), releases
local Mutex = {}

---@class dblocks.RWLock
---@field try_read fun(self, opts?: { ticket?: string }): dblocks.Lock|nil, string?, dblocks.Code? as of a mutex
---@field read fun(self, opts?: dblocks.AcquireOptions): dblocks.Lock|nil, string?, dblocks.Code?
---@field with_read fun(self, ...): true|nil, ...any
---@field try_write fun(self, opts?: { ticket?: string }): dblocks.Lock|nil, string?, dblocks.Code?
---@field write fun(self, opts?: dblocks.AcquireOptions): dblocks.Lock|nil, string?, dblocks.Code?
---@field with_write fun(self, ...): true|nil, ...any
local RWLock = {}
local mutexes = { __index = Mutex, __name = "dblocks.mutex" }
local rwlocks = { __index = RWLock, __name = "dblocks.rwlock" }

local function resource(type, id, where)
  type = options.argument(type, checks.word, "the type", where)
  id = options.argument(id, checks.id, "the id", where)
  return { type = type, id = id, words = ("%s %s"):format(type, id) }
end

--- A mutex. Does not ask the database. It is the write lock of the readers–writer lock of that resource.
---@param type string what kind of thing it is: 1 to 64 of A-Z a-z 0-9 _ . : @ + -
---@param id string|integer which one: likewise, or a whole number
---@return dblocks.Mutex
function Locks:mutex(type, id)
  options.method(self, metatable, "locks", "mutex")
  return setmetatable({ _locks = self, _resource = resource(type, id, "mutex") }, mutexes)
end

--- A readers–writer lock: several readers, or one writer. A writer that waits keeps new readers out.
---@param type string
---@param id string|integer
---@return dblocks.RWLock
function Locks:rwlock(type, id)
  options.method(self, metatable, "locks", "rwlock")
  return setmetatable({ _locks = self, _resource = resource(type, id, "rwlock") }, rwlocks)
end

local try_schema = { ticket = checks.ticket }
local schema = { ticket = checks.ticket, timeout = checks.seconds, poll = checks.interval, on_wait = checks.callable }

---@class dblocks.AcquireOptions
---@field timeout? number seconds; none: until it is acquired; 0: try once
---@field poll? number seconds between two attempts, on average (1); a writer tries every 3 seconds at least
---@field on_wait? fun(seconds: number, reason: string) called before each pause: how long it has waited, and who holds
---  the lock, or why the database cannot be reached
---@field ticket? string to hold it under: 1 to 64 of A-Z a-z 0-9 _ . : @ + -. A job that is started again takes over
---  the lock of this ticket that it held before. Two programs that use one ticket both hold the lock

local function acquire(self, kind, where, how)
  local locks = self._locks
  local wait = locks._wait()
  if how.timeout ~= 0 and not wait.sleep then
    error(("%s: nothing here can sleep: give the option sleep to dblocks, a function of seconds"):format(where), 0)
  end
  how.poll = how.poll or 1
  locks.name = locks._name or ticket.name() -- in the child of a fork that of the child
  local mine = how.ticket or ticket.new(locks.name)
  local verb = kind == "read" and "read" or "write"
  local since, message, code = acquiring.acquire(locks._store, wait, self._resource, verb, mine, how)
  if not since then return nil, message, code end
  return lock.new(locks, self._resource, kind, mine, since)
end

local function try(self, kind, where, opts)
  local how = options.check(opts, try_schema, where)
  how.timeout = 0
  return acquire(self, kind, where, how)
end

local function close(held) getmetatable(held).__close(held) end

local function finish(scope, fine, ...)
  local held = scope.held
  scope.held = nil
  if not fine then
    close(held)
    error((...), 0)
  end
  local released, message, code = held:release()
  if released or code == "not_held" then return true, ... end
  return nil, message, code
end

local function run(scope, fn, ...) return finish(scope, pcall(fn, scope.held, ...)) end

local scopes = {
  __close = function(scope)
    if scope.held then close(scope.held) end
  end,
}

-- If a coroutine is closed while fn yields, the code above does not run. A Lua that can close coroutines also has
-- to-be-closed variables.
if coroutine.close then
  run = load [[
    local run = ...
    return function(scope, ...)
      local open <close> = scope
      return run(scope, ...)
    end
  ]](run)
end

-- A table after fn is an argument for fn, unless it is the only one and could be options.
local function with(self, kind, where, opts, fn, ...)
  if type(opts) == "function" then
    if select("#", ...) == 0 and options.could_be(fn, schema) then
      error(where .. ": options come before the function: { … }, fn (to pass such a table to the function: "
        .. "{}, fn, { … })", 0)
    end
    return with(self, kind, where, nil, opts, fn, ...)
  end
  options.argument(fn, checks.callable, "the function", where)
  local held, message, code = acquire(self, kind, where, options.check(opts, schema, where))
  if not held then return nil, message, code end
  return run(setmetatable({ held = held }, scopes), fn, ...)
end

for kind, class in pairs { mutex = Mutex, read = RWLock, write = RWLock } do
  local verb = kind == "mutex" and "acquire" or kind
  local scoped = kind == "mutex" and "with" or "with_" .. kind

  class["try_" .. verb] = function(self, opts) return try(self, kind, "try_" .. verb, opts) end

  class[verb] = function(self, opts) return acquire(self, kind, verb, options.check(opts, schema, verb)) end

  class[scoped] = function(self, ...) return with(self, kind, scoped, ...) end
end

local OF_LOCK = "release of the lock that was acquired"

options.elsewhere(Mutex, "mutex", {
  release = OF_LOCK, unlock = OF_LOCK, lock = "acquire", read = "acquire", try_read = "try_acquire", with_read = "with",
  write = "acquire", try_write = "try_acquire", with_write = "with",
})
options.elsewhere(RWLock, "rwlock", {
  release = OF_LOCK, unlock = OF_LOCK, lock = "read or write", acquire = "read or write",
  try_acquire = "try_read or try_write", with = "with_read or with_write",
})

-- The operator --------------------------------------------------------------------------------------------------------

local list_schema = { older_than = checks.seconds, type = checks.word }

-- Adds the entries of one resource.
local function entries(found, add)
  local row = found.row
  local function note(kind, mine, since)
    add { type = found.type, id = found.id, kind = kind, ticket = mine, acquired_at = since / 1000,
          age = (found.now - since) / 1000 }
  end
  if row.ticket ~= "readers" then note("write", row.ticket, row.acquired_at) end
  if row.is_foreign then note("read", "readers", row.acquired_at) end
  for mine, since in (row.readers or ""):gmatch "([^ ,]+),(%d+)" do note("read", mine, tonumber(since)) end
  if row.pending then note("waiting", row.pending, row.pending_at) end
end

--- Lists what is held, and which writers wait, the oldest first. A mutex is listed as "write". The time of a writer
-- that waits is that of its last sign of life.
---@param opts? { older_than?: number, type?: string } older_than in seconds
---@return table[]|nil list, string? message, dblocks.Code? code of {type, id, kind, ticket, acquired_at, age}; kind is
---  "write", "read" or "waiting"
function Locks:list(opts)
  local only = options.check(opts, list_schema, "list")
  local found, message, code = acquiring.answer(self._store:list())
  if not found then return nil, message, code end
  local list = {}
  local function add(entry)
    if (not only.type or only.type == entry.type) and entry.age >= (only.older_than or -math.huge) then
      table.insert(list, entry)
    end
  end
  for _, each in ipairs(found) do entries(each, add) end
  table.sort(list, function(a, b)
    if a.acquired_at ~= b.acquired_at then return a.acquired_at < b.acquired_at end
    return a.ticket < b.ticket
  end)
  return list
end

--- Ends what is held, or waits, under that ticket; nothing else. Its holder is not told before it asks: make sure that
-- it is dead.
---@param type string
---@param id string|integer
---@param mine string the ticket, from list()
---@return true|nil, string? message, dblocks.Code? code "not_held": nothing of that ticket is there; "in_doubt", …
function Locks:break_lock(type, id, mine)
  local which = resource(type, id, "break_lock")
  options.argument(mine, checks.ticket, "the ticket", "break_lock")
  local outcome, message, code = acquiring.clear(self._store, which, mine)
  if outcome == "released" then return true end
  if outcome then return nil, ("not_held: %s is not held under the ticket %s"):format(which.words, mine), "not_held" end
  return nil, message, code
end

--- Makes the table, where there is none, and looks whether the database keeps locks safely.
---@return true|nil, string? message, dblocks.Code? code "unsafe", "in_transaction", "refused", "unreachable"
function Locks:setup() return acquiring.answer(self._store:setup()) end

--- Closes the connections that the given function has made. Locks stay held. Calls after it return `closed`.
---@return true
function Locks:close()
  self._store:close()
  return true
end

function metatable.__close(self) self:close() end

-- Making it -----------------------------------------------------------------------------------------------------------

local function named(value)
  local wanted = checks.word(value)
  if wanted then return wanted end
  if #value > ticket.NAME_MOST then return ("at most %d bytes"):format(ticket.NAME_MOST) end
end

local common = { name = named, sleep = checks.callable, clock = checks.callable, log = checks.callable }

---@class dblocks.Options
---@field name? string of this client, the front of its tickets ("program@host:pid")
---@field sleep? fun(seconds: number) how to wait (that of nginx, cqueues or LuaSocket)
---@field clock? fun(): number seconds, for how long a wait takes (likewise)
---@field log? fun(level: "warning", message: string) told of failures of the connection, and of what cannot be returned

local function new(make, where, given, opts, further)
  if type(given) ~= "function" and type(given) ~= "table" and type(given) ~= "userdata" then
    error(("%s: a client, or a function that returns one, must be given, not %s"):format(where, type(given)), 0)
  end
  local all = {}
  for key, check in pairs(common) do all[key] = check end
  for key, check in pairs(further or {}) do all[key] = check end
  local known = options.check(opts, all, where)
  return setmetatable({
    name = known.name or ticket.name(),
    _name = known.name,
    _store = make(given, known),
    _log = known.log or function() end,
    _wait = function()
      local sleep, now = clock.find(known.sleep, known.clock)
      return { sleep = sleep, now = now, log = known.log }
    end,
  }, metatable)
end

local dblocks = {}

--- Locks in Redis. `client`: an object with a method eval, and evalsha at best, as those of lua-resty-redis and
-- redis-lua; or a function that returns one, and is called again after a failure.
---@param client table|function
---@param opts? dblocks.Options
function dblocks.redis(client, opts) return new(require("dblocks.redis").new, "redis", client, opts) end

local sql_schema = { dialect = checks.one_of("postgres", "mariadb", "sqlite", "oracle"), table = checks.table_name }

--- Locks in a table of an SQL database. `connection`: of LuaSQL, in no transaction; or a function that returns one, and
-- is called again after a failure.
---@param connection userdata|table|function
---@param opts { dialect: "postgres"|"mariadb"|"sqlite"|"oracle", table?: string }|dblocks.Options table: "mutexes"
function dblocks.sql(connection, opts)
  options.argument(type(opts) == "table" and opts.dialect or nil, sql_schema.dialect, "option dialect", "sql")
  return new(require("dblocks.sql").new, "sql", connection, opts, sql_schema)
end

---@class dblocks.CassandraOptions: dblocks.Options
---@field table string "keyspace.table"

--- Locks in Cassandra. `client`: an object with a method execute, as that of lua-cassandra; or a function that returns
-- one, and is called again after a failure.
---@param client table|function
---@param opts dblocks.CassandraOptions
function dblocks.cassandra(client, opts)
  return new(require("dblocks.cassandra").new, "cassandra", client, opts, { table = checks.keyspace_table })
end

return dblocks
