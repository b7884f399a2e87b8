-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Locks in a table of an SQL database, over a connection of LuaSQL: a store of swapping.lua. The statements are common
-- SQL; the rest is in dialects.lua.
--
-- A row for each resource that is held. resource_type and resource_id are its primary key; ticket and acquired_at tell
-- of its writer, or the ticket is "readers". Then active_readers has the tickets and times of all readers, "ticket,ms
-- ticket,ms", pending_writer "ticket,ms" of the writer that waits, and revision is new after each change.
--
-- Each statement is a transaction of its own. In an open transaction of the caller nothing is changed: other clients
-- would wait for its end, or not see the row. Transactions are never begun or ended here. Only guard() asks within one.
--
-- The text of an error is not looked at. After an error the row is read. If the row is another one, then a race was
-- lost. (REPEATABLE READ and SERIALIZABLE tell of races by errors, as a deadlock does.) If the row is the same, the
-- statement is repeated, as READ COMMITTED where that can be said: a serialization failure does not last, and a refusal
-- does. If the row cannot be read, a trivial statement tells whether the connection is dead.
local client = require "dblocks.client"
local dialects = require "dblocks.dialects"
local late = require "dblocks.late"
local sql_connection = require "dblocks.sql_connection"
local sql_rows = require "dblocks.sql_rows"
local swapping = require "dblocks.swapping"

local sql = setmetatable({}, client)
sql.__index = sql

local failure, in_transaction = sql_connection.failure, sql_connection.in_transaction

local TRIES = 8 -- of a statement that is answered with an error
local WAIT = 2 -- seconds: an error that came only then has waited for a transaction of others, in vain

local KEY = "resource_type = '%s' AND resource_id = '%s'"
local NOTE = "resource_type, resource_id, ticket, acquired_at"
local ALL = NOTE .. ", active_readers, pending_writer, revision"

-- Statements ----------------------------------------------------------------------------------------------------------

-- Asks, again after an error that may have been a lost race.
local function asked(self, ask, text)
  local message, code
  for nth = 1, TRIES do
    local rows, problem, was_closed = ask(text)
    if rows then return rows end
    message, code = select(2, sql_connection.trouble(self._dialect, ask, problem, was_closed))
    if code ~= "refused" then break end
    if nth == 1 then text = (self._dialect.again or "") .. text end
  end
  return nil, message, code
end

-- A SELECT of the time and of further columns, a row at least.
local function asked_of(self, ask, columns, join)
  local dialect = self._dialect
  local rows, message, code = asked(self, ask, ("SELECT c.moment, c.is_free, %s FROM (SELECT %s AS moment,"
    .. " CASE WHEN %s THEN 1 ELSE 0 END AS is_free%s) c LEFT JOIN %s m ON %s")
    :format(columns, dialect.now, dialect.free, dialect.dual, self._table, join))
  if not rows then return nil, message, code end
  if tonumber(rows[1][2]) ~= 1 then return in_transaction() end
  return rows, sql_rows.time(rows[1][1])
end

local function foreign(type, id)
  return failure("refused", ("the row of %s %s in the table was not written by dblocks"):format(type, id))
end

function sql:read(one, resource)
  local rows, now, code = asked_of(self, one.ask,
    "m.ticket, m.acquired_at, m.active_readers, m.pending_writer, m.revision", KEY:format(resource.type, resource.id))
  if not rows then return nil, now, code end
  local row = rows[1]
  if not row[3] then return false, now end
  row = sql_rows.parsed(row[3], row[4], row[5], row[6], row[7])
  if not row then return foreign(resource.type, resource.id) end
  return row, now
end

-- A condition: it is not too late.
local function timely(self, one) return ("%s < %.0f"):format(self._dialect.now, one.expiry) end

-- Changes the row of `resource`, which is `before`. Returns the number of rows, or the time in the row that was put;
-- false: it was another row, nothing was changed, and what read() says.
local function change(self, one, resource, before, text, column)
  local dialect, problem = self._dialect, nil
  if dialect.change then text = dialect.change(text, column, timely(self, one)) end
  for nth = 1, TRIES do
    local begun = os.time()
    local answer, message, was_closed = one.ask(text)
    if type(answer) == "table" then return column and answer[1] and sql_rows.time(answer[1][1]) or #answer end
    if answer then return answer end
    local has_waited = os.time() - begun >= WAIT
    if was_closed then return failure("unreachable", message) end
    if dialect.locked(message) then return failure("contended", message) end
    local row, why, code = self:read(one, resource)
    if row == nil and code == "unreachable" then return failure("in_doubt", message) end
    if row == nil then return nil, why, code end
    if not sql_rows.is_same(row, before) or why >= one.expiry then return false, row, why end
    if has_waited then return failure("contended", message) end
    problem = message
    if nth == 1 then text = (dialect.again or "") .. text end
  end
  return failure(dialect.passes(problem) and "contended" or "refused", problem)
end

-- Puts a row where none is. Returns what change() does, with acquired_at of the row if the database returns that.
local function insert(self, one, resource, columns, written)
  local dialect, key = self._dialect, KEY:format(resource.type, resource.id)
  local text = dialect.insert:format(self._table, columns, ("'%s', '%s', %s")
    :format(resource.type, resource.id, written), dialect.free .. " AND " .. timely(self, one), self._table, key)
  return change(self, one, resource, false, text, dialect.change and "acquired_at")
end

-- What change() has returned, as whether it has changed something.
local function whether(answer, ...)
  if answer then return answer > 0 end
  return answer, ...
end

function sql:claim(one, resource, mine)
  local put, seen, code = insert(self, one, resource, NOTE, sql_rows.quoted(mine) .. ", " .. self._dialect.now)
  if not put then return put, seen, code end
  if put == 0 then return false end
  if self._dialect.change then return put end
  local row, now, why = self:read(one, resource)
  if row == nil and why ~= "in_transaction" then return failure("in_doubt", (now:gsub("^" .. why .. ": ", ""))) end
  if row == nil then return nil, now, why end
  return row and row.ticket == mine and row.acquired_at
end

local function only(self, one, resource, before)
  local where = ("%s AND ticket = '%s'"):format(KEY:format(resource.type, resource.id), before.ticket)
  if before.ticket ~= "readers" then
    where = ("%s AND acquired_at = %.0f"):format(where, before.acquired_at)
  else
    where = where .. " AND revision " .. (before.revision and "= " .. sql_rows.quoted(before.revision) or "IS NULL")
  end
  return ("%s AND %s AND %s"):format(where, self._dialect.free, timely(self, one))
end

function sql:swap(one, resource, before, after)
  if not before then
    return whether(insert(self, one, resource, ALL, table.concat({ sql_rows.values(after) }, ", ")))
  end
  local text = ("DELETE FROM %s WHERE "):format(self._table)
  if after then
    text = ("UPDATE %s SET ticket = %s, acquired_at = %s, active_readers = %s, pending_writer = %s, revision = %s"
      .. " WHERE "):format(self._table, sql_rows.values(after))
  end
  text = text .. only(self, one, resource, before)
  return whether(change(self, one, resource, before, text))
end

function sql:clear(one, resource, mine, since)
  return self:swap(one, resource, { ticket = mine, acquired_at = since }, false)
end

-- Use of a connection -------------------------------------------------------------------------------------------------

local ODBC = "sql: a connection of luasql.odbc is refused: it cuts times to 32 bits, and dies when no row is changed;"
  .. " use that of luasql.postgres, luasql.mysql, luasql.sqlite3 or luasql.oci8"

local function check_driver(one)
  if tostring(one):find "^ODBC" then error(ODBC, 0) end
end

-- Whether no transaction is open; or nil, message, code.
local function asked_free(self, ask)
  local dialect = self._dialect
  local rows, message, code = asked(self, ask, ("SELECT CASE WHEN %s THEN 1 ELSE 0 END%s")
    :format(dialect.free, dialect.dual))
  if not rows then return nil, message, code end
  return tonumber(rows[1][1]) == 1
end

-- The first change over a connection shows whether autocommit is on.
local function settled(self, one, ask, first, second, third)
  local has_changed = first == "held" or first == "released"
  if not self._dialect.late or self._settled[one] or not has_changed then return first, second, third end
  local is_free = asked_free(self, ask)
  if is_free == false then
    return failure("in_transaction", "autocommit is off: the change is part of an open transaction: roll it back")
  end
  self._settled[one] = is_free
  return first, second, third
end

local function entered(one, time, self, fn, ...)
  local ask, dialect = sql_connection.asker(one), self._dialect
  if not dialect.enter then return settled(self, one, ask, fn(ask, time, ...)) end
  local state, message, code = dialect.enter(ask)
  if state == nil and code == "in_transaction" then return in_transaction() end
  if state == nil then return sql_connection.trouble(dialect, ask, message, code == "closed") end
  local first, second, third = fn(ask, time, ...)
  dialect.leave(ask, state)
  return first, second, third
end

local function step(ask, time, self, ...)
  return swapping.step(self, { ask = ask, expiry = late.expiry(time) - (self._dialect.runs or 0) }, ...)
end

function sql:step(...) return self:use(entered, self, step, self, ...) end

-- A transaction of the caller's ---------------------------------------------------------------------------------------

-- Whether no transaction is open; or nil, message, code.
local function is_outside(self, ask)
  local dialect = self._dialect
  if not dialect.enter then return asked_free(self, ask) end
  local state, message, code = dialect.enter(ask)
  if state ~= nil then dialect.leave(ask, state) end
  if state ~= nil or code == "in_transaction" then return state ~= nil end
  return sql_connection.trouble(dialect, ask, message, code == "closed")
end

-- Nothing is repeated here: after an error PostgreSQL refuses whatever else the transaction asks.
local function unguarded(dialect, ask, message, was_closed)
  if was_closed then return failure("unreachable", message) end
  if dialect.locked(message) or dialect.passes(message) then return failure("contended", message) end
  local answers = ask("SELECT 1" .. dialect.dual) or dialect.aborted and dialect.aborted(ask)
  return failure(answers and "refused" or "unreachable", message)
end

--- Locks the row of a lock in the transaction of `connection`. Whether there is one is asked afterwards: in Oracle this
-- may have begun it. Returns "held" or "lost"; or nil, message, code.
function sql:guard(connection, resource, mine, since)
  check_driver(connection)
  local dialect, ask, key = self._dialect, sql_connection.asker(connection), KEY:format(resource.type, resource.id)
  local rows, message, was_closed = true, nil, nil
  if dialect.touch then rows, message, was_closed = ask(dialect.touch:format(self._table, key)) end
  if rows then
    rows, message, was_closed = ask(("SELECT %s FROM %s WHERE %s%s"):format(ALL, self._table, key, dialect.share))
  end
  if not rows then return unguarded(dialect, ask, message, was_closed) end
  local found = rows[1] or {}
  local row = found[3] and sql_rows.parsed(found[3], found[4], found[5], found[6], found[7])
  if not row or not swapping.is_held(row, mine, since) then return "lost" end
  local outside, problem, code = is_outside(self, ask)
  if outside then return failure("refused", "the connection has no open transaction: begin one before") end
  if outside == nil then return nil, problem, code end
  return "held"
end

-- The operator --------------------------------------------------------------------------------------------------------

local function list(ask, _, self)
  local rows, now, code = asked_of(self, ask, "m." .. ALL:gsub(", ", ", m."), "1 = 1")
  if not rows then return nil, now, code end
  local all = {}
  for _, found in ipairs(rows) do
    local type, id = found[3], found[4]
    local row = type and sql_rows.parsed(found[5], found[6], found[7], found[8], found[9])
    if type and not row then return foreign(type, id) end
    if row then table.insert(all, { type = tostring(type), id = tostring(id), row = row, now = now }) end
  end
  return all
end

function sql:list() return self:use(entered, self, list, self) end

local TABLE = [[CREATE TABLE %s (
  resource_type %s NOT NULL,
  resource_id %s NOT NULL,
  ticket %s NOT NULL,
  acquired_at %s NOT NULL,
  active_readers %s,
  pending_writer %s,
  revision %s,
  PRIMARY KEY (resource_type, resource_id)
)%s]]

--- The statement that makes the table, for a person to execute.
function sql.statement(dialect, name)
  local types = dialects[dialect].types
  local word, time, readers, writer = types[1], types[2], types[3], types[4]
  return TABLE:format(name, word, word, word, time, readers, writer, word, dialects[dialect].options)
end

local function setup(ask, _, self)
  local dialect = self._dialect
  local is_free, message, code = asked_free(self, ask)
  if is_free == nil then return nil, message, code end
  if not is_free then return in_transaction() end -- many databases end it before they make a table
  local look = ("SELECT %s FROM %s WHERE 1 = 0"):format(ALL, self._table)
  if not ask(look) then
    local made, why = ask(sql.statement(self._name, self._table))
    local found
    found, message, code = asked(self, ask, look) -- another process may have made it
    if not found then
      return nil, made and message or ("%s; %s"):format(message, sql_connection.bare(why)), code
    end
  end
  local unsafe = dialect.unsafe and dialect.unsafe(ask, self._table)
  if unsafe then return failure("unsafe", unsafe) end
  return true
end

function sql:setup() return self:use(entered, self, setup, self) end

--- A store over a connection of LuaSQL, or a function that makes one. `known`: dialect, table.
function sql.new(given, known)
  if type(given) ~= "function" then check_driver(given) end
  local dialect = dialects[known.dialect]
  local function close(one) one:close() end
  local self
  local function tell(one)
    check_driver(one)
    local rows, message, code = asked(self, sql_connection.asker(one), "SELECT " .. dialect.now .. dialect.dual)
    if not rows then return nil, message, code end
    return sql_rows.time(rows[1][1])
  end
  self = setmetatable(client.new(given, close, tell, known.clock), sql)
  self._dialect, self._name, self._table = dialect, known.dialect, known.table or "mutexes"
  self._settled, self.sleep = setmetatable({}, { __mode = "k" }), known.sleep
  return self
end

return sql
