-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks in Cassandra, 3.11.10, 4.0 or later. Each change is a lightweight transaction, at QUORUM and SERIAL, and each
-- look at a resource is a SELECT at SERIAL. No statement has a TTL or a timestamp: a time of a client would compete
-- with the times of the transactions.
--
-- A client is an object with execute(cql, args, opts) -> rows | nil, message, code, as that of lua-cassandra: `code` is
-- the error code of the native protocol, and nil if no answer came; timestamps are numbers of milliseconds. The texts
-- in the statements are literals: they are checked by options.lua, and what is read from the table by `decoded`.
local client = require "dblocks.client"
local options = require "dblocks.options"
local swapping = require "dblocks.swapping"

local cassandra = {}
cassandra.__index = cassandra

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

local function are_readers(value)
  if type(value) ~= "table" then return value == nil end
  for mine, since in pairs(value) do
    if not is_word(mine) or not is_time(since) then return false end
  end
  return true
end

-- A row as swapping.lua has it; nil, message, code: others have put it there.
local function decoded(found)
  local row = { ticket = found.ticket, acquired_at = found.acquired_at }
  local fine = is_word(row.ticket) and is_time(row.acquired_at)
  if fine and row.ticket == "readers" then
    row.readers, row.revision = found.active_readers or {}, found.revision
    row.pending, row.pending_at = found.pending_writer, found.pending_at
    fine = are_readers(found.active_readers) and is_word(row.revision) and
      (row.pending == nil or is_word(row.pending) and is_time(row.pending_at))
  end
  if fine then return row end
  return nil, ("refused: Cassandra: the row of %s %s is not of dblocks"):format(tostring(found.resource_type),
    tostring(found.resource_id)), "refused"
end

-- Literals.
local function text(value) return "'" .. value .. "'" end

local function moment(value) return ("%.0f"):format(value) end

local function map(readers)
  local list = {}
  for mine, since in pairs(readers) do table.insert(list, text(mine) .. ": " .. moment(since)) end
  return "{" .. table.concat(list, ", ") .. "}"
end

-- The columns of a row, but for the key: name, literal, or "null".
local function columns(row)
  local list = {}
  local function add(name, literal, value) table.insert(list, { name, value and literal(value) or "null" }) end
  add("ticket", text, row.ticket)
  add("acquired_at", moment, row.acquired_at)
  add("active_readers", map, row.readers)
  add("pending_writer", text, row.pending)
  add("pending_at", moment, row.pending_at)
  add("revision", text, row.revision)
  return list
end

local KEY = "resource_type, resource_id"

local function where(resource)
  return ("resource_type = %s AND resource_id = %s"):format(text(resource.type), text(resource.id))
end

-- Only that row; one of readers has not been changed since it was read.
local function only(row)
  return row.revision and ("ticket = 'readers' AND revision = %s"):format(text(row.revision)) or
    ("ticket = %s"):format(text(row.ticket))
end

-- What swapping.lua needs --------------------------------------------------------------------------------------------

-- The clock of the node that answers.
local function time(one)
  local rows, message, code = ask(one, ONE, "SELECT toTimestamp(now()) AS now FROM system.local")
  if not rows then return nil, message, code end
  local now = rows[1] and rows[1].now
  if is_time(now) then return now end
  return nil, "refused: Cassandra: the client must return timestamps as numbers of milliseconds", "refused"
end

function cassandra:read(one, resource)
  local rows, message, code = ask(one, SERIAL, ("SELECT %s FROM %s WHERE %s"):format(COLUMNS, self._table,
    where(resource)))
  if not rows then return nil, message, code end
  local found = rows[1]
  if not found then
    local now, why, kind = time(one)
    if not now then return nil, why, kind end
    return false, now
  end
  local row, why, kind = decoded(found)
  if not row then return nil, why, kind end
  return row, found.now
end

-- Without the columns that are null: each would be stored as a deletion.
local function insert(self, one, resource, row)
  local names, values = {}, {}
  for _, column in ipairs(columns(row)) do
    if column[2] ~= "null" then
      table.insert(names, column[1])
      table.insert(values, column[2])
    end
  end
  return change(one, ("INSERT INTO %s (%s, %s) VALUES (%s, %s, %s) IF NOT EXISTS"):format(self._table, KEY,
    table.concat(names, ", "), text(resource.type), text(resource.id), table.concat(values, ", ")))
end

local function update(self, one, resource, before, after)
  local list = {}
  for i, column in ipairs(columns(after)) do list[i] = column[1] .. " = " .. column[2] end
  return change(one, ("UPDATE %s SET %s WHERE %s IF %s"):format(self._table, table.concat(list, ", "), where(resource),
    only(before)))
end

local function delete(self, one, resource, before)
  return change(one, ("DELETE FROM %s WHERE %s IF %s"):format(self._table, where(resource), only(before)))
end

function cassandra:swap(one, resource, before, after)
  local applied, seen, code
  if not before then
    applied, seen, code = insert(self, one, resource, after)
  elseif after then
    applied, seen, code = update(self, one, resource, before, after)
  else
    applied, seen, code = delete(self, one, resource, before)
  end
  if applied == nil then return nil, seen, code end
  -- A client may itself repeat a statement whose answer was late: the second one finds what the first has done.
  return applied or after and after.revision ~= nil and seen.revision == after.revision
end

-- The time is asked first, from the node alone: a transaction does not return the time that it has stored, and to read
-- the row again would cost a round trip between the nodes.
function cassandra:claim(one, resource, mine)
  local now, message, code = time(one)
  if not now then return nil, message, code end
  local applied, seen, kind = insert(self, one, resource, { ticket = mine, acquired_at = now })
  if applied == nil then return nil, seen, kind end
  return applied and now
end

function cassandra:clear(one, resource, mine)
  return delete(self, one, resource, { ticket = mine })
end

local function use(self, fn, ...)
  return self._client:use(function(given, ...)
    local one = { client = given }
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
      if not row then return nil, why, kind end
      table.insert(all, { type = found.resource_type, id = found.resource_id, row = row, now = found.now })
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

-- As Cassandra does it with a name, whatever the locale.
local function lower(name)
  return (name:gsub("[A-Z]", function(letter) return string.char(letter:byte() + 32) end))
end

local function setup(self, one)
  local keyspace, name = lower(self._table):match "^(.*)%.(.*)$"
  local made, message, code = make(self, one, keyspace, name)
  if not made then return nil, message, code end
  local looked, why, kind = ask(one, QUORUM, ("SELECT %s FROM %s LIMIT 1"):format(COLUMNS, self._table))
  if not looked then return nil, why, kind end
  return durable(one, keyspace)
end

function cassandra:setup() return use(self, setup) end

function cassandra:renews() return self._client:renews() end

function cassandra:close() self._client:close() end

--- A store over a client, or a function that makes one. `known.table`: "keyspace.table".
function cassandra.new(given, known)
  if not known.table then error('cassandra: the option table must be given: "keyspace.table"', 0) end
  local function close(one)
    if one.close then one:close() end
  end
  local function alive(one) return time { client = one } ~= nil end
  return setmetatable({ _client = client.new(given, close, alive), _table = known.table }, cassandra)
end

return cassandra
