-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks in Cassandra, 3.11.10, 4.0 or later. Each change is a lightweight transaction, at QUORUM and SERIAL, and each
-- look at a resource is a SELECT at SERIAL. No statement has a timestamp: a time of a client would compete with the
-- times of the transactions.
--
-- A transaction cannot compare the clock of the server, so late.lua has no say here. Each change gives the row a new
-- random revision, and is made only if the row still has the one that was read. The row of a resource that was released
-- keeps its revision, without a ticket, for a day. So a change that arrives late, after its repetition, finds another
-- revision. No row is ever put by INSERT: its marker would stay when the columns are gone.
--
-- A client is an object with execute(cql, args, opts) -> rows | nil, message, code, as that of lua-cassandra: `code` is
-- the error code of the native protocol, and nil if no answer came; timestamps are numbers of milliseconds. The texts
-- in the statements are literals: they are checked by options.lua, and what is read from the table by `decoded`.
local client = require "dblocks.client"
local options = require "dblocks.options"
local swapping = require "dblocks.swapping"
local ticket = require "dblocks.ticket"

local cassandra = setmetatable({ fenced = true }, client)
cassandra.__index = cassandra

local MARK = 86400 -- seconds, for which a row without a ticket stays

-- Consistency levels of the native protocol. SERIAL must never be mixed with LOCAL_SERIAL: they do not see each other.
local ONE, QUORUM, SERIAL = 0x0001, 0x0004, 0x0008

local TABLE = [[
CREATE TABLE IF NOT EXISTS %s (
  resource_type text,
  resource_id text,
  ticket text,
  acquired_at timestamp,
  active_readers frozen<map<text, timestamp>>,
  pending_writer text,
  pending_at timestamp,
  revision text,
  PRIMARY KEY ((resource_type, resource_id))
)]]

local COLUMNS = "resource_type, resource_id, ticket, acquired_at, active_readers, pending_writer, pending_at, "
  .. "revision, toTimestamp(now()) AS now"

-- The answers to a statement -----------------------------------------------------------------------------------------

-- Errors of the request itself, which the server does not begin: of the protocol, of the credentials; 2xxx: of
-- the syntax, the permissions, the tables.
--
-- No other error says that nothing was changed, not even "unavailable" (0x1000): a node that commits a transaction,
-- which the others have accepted, counts the living ones again.
local function is_refusal(code) return code == 0x000A or code == 0x0100 or code >= 0x2000 and code < 0x3000 end

-- `one` has the client, and `is_broken` after a failure that was no answer: the answer may still come, as that to the
-- next question. `otherwise`: the code of failures that are no refusals.
local function execute(one, otherwise, cql, opts)
  local fine, rows, message, code = pcall(one.client.execute, one.client, cql, nil, opts)
  if fine and type(rows) == "table" then return rows end
  if not fine then message, code = rows, nil end
  code = tonumber(code)
  if not code then one.is_broken = true end
  local kind = code and is_refusal(code) and "refused" or otherwise
  return nil, ("%s: Cassandra: %s"):format(kind, tostring(message or "no answer")), kind
end

local function ask(one, consistency, cql, paging_state)
  return execute(one, "unreachable", cql, { consistency = consistency, page_size = 1000, paging_state = paging_state })
end

-- Returns whether the transaction was applied, and the row that it has seen if not.
local function change(one, cql)
  local rows, message, code = execute(one, "in_doubt", cql, { consistency = QUORUM, serial_consistency = SERIAL })
  if not rows then return nil, message, code end
  local row = rows[1] or {}
  local applied = row["[applied]"]
  if type(applied) == "boolean" then return applied, row end
  one.is_broken = true
  return nil, "in_doubt: Cassandra: the answer is that to another question", "in_doubt"
end

-- Rows ---------------------------------------------------------------------------------------------------------------

local function is_word(value) return type(value) == "string" and not options.checks.word(value) end

local function is_time(value) return type(value) == "number" end

-- The readers of a map as a text, and how many there are; nil: the map is not of dblocks.
local function readers_of(map)
  local list = {}
  if type(map or list) ~= "table" then return nil end
  for mine, since in pairs(map or list) do
    if not is_word(mine) or not is_time(since) then return nil end
    table.insert(list, ("%s,%.0f"):format(mine, since))
  end
  return table.concat(list, " "), #list
end

-- A row as swapping.lua has it; nil, message, code: others have put it there.
local function decoded(found)
  local row = { ticket = found.ticket, acquired_at = found.acquired_at }
  local fine = is_word(row.ticket) and is_time(row.acquired_at) and is_word(found.revision)
  if fine and row.ticket == "readers" then
    row.readers, row.inside = readers_of(found.active_readers)
    row.pending, row.pending_at = found.pending_writer, found.pending_at
    fine = row.readers and (row.pending == nil or is_word(row.pending) and is_time(row.pending_at))
  end
  if fine then return row end
  return nil, ("refused: Cassandra: the row of %s %s is not of dblocks"):format(tostring(found.resource_type),
    tostring(found.resource_id)), "refused"
end

-- Literals.
local function text(value) return "'" .. value .. "'" end

local function moment(value) return ("%.0f"):format(value) end

local function map(readers) return "{" .. readers:gsub("([^ ,]+),(%d+)", "'%1': %2"):gsub(" '", ", '") .. "}" end

local SET = "ticket = %s, acquired_at = %s, active_readers = %s, pending_writer = %s, pending_at = %s, revision = %s"

-- The part of a statement behind SET.
local function columns(row, revision)
  local function or_null(literal, value) return value and literal(value) or "null" end
  return SET:format(or_null(text, row.ticket), or_null(moment, row.acquired_at), or_null(map, row.readers),
    or_null(text, row.pending), or_null(moment, row.pending_at), text(revision))
end

local function where(resource)
  return ("resource_type = %s AND resource_id = %s"):format(text(resource.type), text(resource.id))
end

-- What swapping.lua needs --------------------------------------------------------------------------------------------

-- The clock of the node that answers.
local function tell(given)
  local rows, message, code = ask({ client = given }, ONE, "SELECT toTimestamp(now()) AS now FROM system.local")
  if not rows then return nil, message, code end
  local now = rows[1] and rows[1].now
  if is_time(now) then return now end
  return nil, "refused: Cassandra: the client must return timestamps as numbers of milliseconds", "refused"
end

function cassandra:read(one, resource)
  local rows, message, code = ask(one, SERIAL, ("SELECT %s FROM %s WHERE %s"):format(COLUMNS, self._table,
    where(resource)))
  if not rows then return nil, message, code end
  local found = rows[1] or {}
  one.revision = found.revision
  if found.ticket == nil then return false, one.time end
  local row, why, kind = decoded(found)
  if not row then return nil, why, kind end
  return row, one.time
end

-- Changes the row to `after` (false: nothing is held), if `condition` is true. A client may itself repeat a statement
-- whose answer was late: the second one finds the revision of the first.
local function update(self, one, resource, after, condition)
  local revision = assert(ticket.random(8), "/dev/urandom cannot be read")
  local applied, seen, code = change(one, ("UPDATE %s%s SET %s WHERE %s IF %s"):format(self._table,
    after and "" or (" USING TTL %d"):format(MARK), columns(after or {}, revision), where(resource),
    condition:format(text(revision))))
  if applied == nil then return nil, seen, code end
  return applied or seen.revision == revision
end

-- The row is still the one that was read.
function cassandra:swap(one, resource, _, after)
  local is_new = one.revision == nil
  return update(self, one, resource, after, is_new and "ticket = null AND revision = null" or
    "revision = " .. text(one.revision))
end

function cassandra.claim() return false end

function cassandra:clear(one, resource, mine, since)
  return update(self, one, resource, false, ("ticket = %s AND acquired_at = %s AND revision != %%s"):format(text(mine),
    moment(since)))
end

local function use(self, fn, ...)
  return self:use(function(given, now, ...)
    local one = { client = given, time = now }
    local first, second, third = fn(self, one, ...)
    return first, second, third, not one.is_broken
  end, ...)
end

function cassandra:step(...) return use(self, swapping.step, ...) end

-- The operator -------------------------------------------------------------------------------------------------------

local function list(self, one)
  local all, paging_state = {}, nil
  repeat
    local rows, message, code = ask(one, QUORUM, ("SELECT %s FROM %s"):format(COLUMNS, self._table), paging_state)
    if not rows then return nil, message, code end
    for _, found in ipairs(rows) do
      local row, why, kind = decoded(found)
      if found.ticket ~= nil and not row then return nil, why, kind end
      if row then
        table.insert(all, { type = found.resource_type, id = found.resource_id, row = row, now = found.now })
      end
    end
    paging_state = rows.meta and rows.meta.has_more_pages and rows.meta.paging_state
  until not paging_state
  return all
end

function cassandra:list() return use(self, list) end

local function unsafe(message) return nil, "unsafe: " .. message, "unsafe" end

-- The first row of a table of Cassandra's own; false: there is none.
local function own(one, column, of, condition, ...)
  local rows, message, code = ask(one, ONE, ("SELECT %s FROM %s WHERE " .. condition):format(column, of, ...))
  if not rows then return nil, message, code end
  return rows[1] or false
end

-- A table that is there is not made again: that would need another permission.
local function make(self, one, keyspace, name)
  local found, message, code = own(one, "default_time_to_live", "system_schema.tables",
    "keyspace_name = '%s' AND table_name = '%s'", keyspace, name)
  if found == nil then return nil, message, code end
  if not found then return execute(one, "in_doubt", TABLE:format(self._table), { consistency = QUORUM }) end
  if (found.default_time_to_live or 0) == 0 then return true end
  return unsafe(("%s has a default_time_to_live: locks would end by themselves"):format(self._table))
end

local function replicas(replication)
  local count = 0
  for name, value in pairs(replication or {}) do
    if name ~= "class" then count = count + (tonumber(tostring(value):match "^%d+") or 0) end
  end
  return count
end

-- Whether locks outlive a node that is killed.
local function durable(one, keyspace)
  local found, message, code = own(one, "durable_writes, replication", "system_schema.keyspaces",
    "keyspace_name = '%s'", keyspace)
  if found == nil then return nil, message, code end
  if found and found.durable_writes == false then
    return unsafe(("the keyspace %s has durable_writes = false: locks end when nodes restart"):format(keyspace))
  end
  if not found or replicas(found.replication) ~= 1 then return true end
  local sync, why, kind = own(one, "value", "system_views.settings", "name = 'commitlog_sync'")
  if sync == nil and kind ~= "refused" then return nil, why, kind end -- refused: Cassandra 3 has no such table
  if not sync or sync.value ~= "periodic" then return true end
  return unsafe(("the keyspace %s has one replica, and commitlog_sync is periodic: a node that is killed forgets the "
    .. "last locks"):format(keyspace))
end

local function setup(self, one)
  local keyspace, name = options.lower(self._table):match "^(.*)%.(.*)$"
  local made, message, code = make(self, one, keyspace, name)
  if not made then return nil, message, code end
  local looked, why, kind = ask(one, QUORUM, ("SELECT %s FROM %s LIMIT 1"):format(COLUMNS, self._table))
  if not looked then return nil, why, kind end
  return durable(one, keyspace)
end

function cassandra:setup() return use(self, setup) end

--- A store over a client, or a function that makes one. `known.table`: "keyspace.table".
function cassandra.new(given, known)
  if not known.table then error('cassandra: the option table must be given: "keyspace.table"', 0) end
  local function close(one)
    if one.close then one:close() end
  end
  local self = setmetatable(client.new(given, close, tell, known.clock), cassandra)
  self._table, self.sleep = known.table, known.sleep
  return self
end

return cassandra
