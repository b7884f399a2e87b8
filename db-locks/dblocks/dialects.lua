-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What the SQL of each database has of its own. All texts that come in have been restricted by options.lua, so no
-- literal needs to be escaped.
--
-- A dialect has:
--
--     now         the database's clock, in milliseconds since the epoch, whatever the time zone of the session
--     free        a condition: no transaction is open. It is part of a statement, so it costs no round trip
--     late        `free` does not know of autocommit that is off before something was changed
--     dual        of a SELECT without a table
--     insert      how a row is put where there is none, with %s for table, columns, values, the condition and the key
--     change(text, column, timely)  the statement that changes something; its answer is `column` of each row. `timely`
--                 is a condition: it is not too late. nil: as it is, answered with the number of rows
--     runs        milliseconds for which such a statement may run after it has found that it is not too late; nil: none
--     types       of a word, a time, the readers, a writer that waits
--     options     of the table
--     enter(ask)        before each step; returns something for leave(ask, it), or nil, message, code ("closed": the
--                       connection was closed by its owner)
--     share       ends a SELECT whose row nobody else may change until the transaction ends
--     touch       the UPDATE that precedes such a SELECT, with %s for table and key; nil: none
--     again       what precedes a statement that is repeated after an error; nil: nothing
--     aborted(ask)  after an error: whether a transaction is open in which an error came before
--     locked(message)   whether an error shows that others have locked the row for too long
--     passes(message)   whether an error passes by itself when the statement is repeated
--     unsafe(ask, table) what would lose locks as the database is set up; nil: nothing
--
-- ask(text) returns the rows of a query or a number, or nil and the text of the error. Errors are text in the language
-- of the server. Where they are compared here, they are English; in another language an error counts as one that stays,
-- unless it came after 2 seconds.
local dialects = {}

-- Returns a function that tells whether a message has one of these texts.
local function any(...)
  local texts = { ... }
  return function(message)
    for _, text in ipairs(texts) do
      if message:find(text, 1, true) then return true end
    end
    return false
  end
end

local function first(rows) return type(rows) == "table" and rows[1] or {} end

-- PostgreSQL ----------------------------------------------------------------------------------------------------------

-- A statement that is its own transaction begins with it, to the microsecond. In a transaction that was begun before,
-- now() is earlier.
dialects.postgres = {
  now = "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)",
  free = "now() = statement_timestamp()",
  dual = "",
  insert = "INSERT INTO %s (%s) SELECT %s WHERE %s ON CONFLICT (resource_type, resource_id) DO NOTHING",
  share = " FOR SHARE",
  locked = any("due to lock timeout", "due to statement timeout"),
  passes = any("deadlock detected", "could not serialize", "conflict with recovery"),
  types = { "TEXT", "BIGINT", "TEXT", "TEXT" },
  options = "",
  -- SERIALIZABLE refuses statements because of those on other rows, too. The two statements are one implicit
  -- transaction. After an error there is no transaction of the caller that it could apply to, but a broken one.
  again = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ",
}

-- A statement that has waited for others looks at the clock again: it fails if it has become too late, and so changes
-- nothing.
function dialects.postgres.change(text, column, timely)
  return ("%s RETURNING %s / CASE WHEN %s THEN 1 ELSE 0 END"):format(text, column or "1", timely)
end

-- After an error in a transaction everything is refused but the end of the transaction, and nothing at all, the empty
-- statement: LuaSQL takes this for an error, too, but the server has sent no text with it.
function dialects.postgres.aborted(ask)
  local _, message = ask ""
  return (message or ""):find "PostgreSQL:%s*$" ~= nil
end

-- A column of CHAR pads its words with spaces, so no ticket is found again.
local PADDED = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('%s') AND atttypid = 'bpchar'::regtype"
  .. " AND NOT attisdropped ORDER BY attnum"

function dialects.postgres.unsafe(ask, name)
  local found = first(ask(("SELECT current_setting('fsync'), current_setting('full_page_writes'),"
    .. " current_setting('synchronous_commit'), (SELECT relpersistence FROM pg_class WHERE oid = to_regclass('%s'))")
    :format(name)))
  if found[1] == "off" then return "fsync is off: a crash of its machine loses locks" end
  if found[2] == "off" then return "full_page_writes is off: a crash of its machine loses locks" end
  if found[3] == "off" then return "synchronous_commit is off: a crash loses the last locks" end
  if found[4] == "u" then return "the table is UNLOGGED: a crash empties it" end
  if found[4] == "t" then return "the table is TEMPORARY: only this connection sees it" end
  local padded = first(ask(PADDED:format(name)))[1]
  if padded then return ("the column %s is a CHAR, which pads words with spaces: use TEXT"):format(padded) end
end

-- MariaDB -------------------------------------------------------------------------------------------------------------

dialects.mariadb = {
  now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000",
  free = "@@autocommit = 1 AND @@in_transaction = 0",
  dual = " FROM DUAL",
  insert = "INSERT INTO %s (%s) SELECT %s FROM DUAL WHERE %s",
  runs = 2000,
  share = " LOCK IN SHARE MODE",
  locked = any("Lock wait timeout exceeded", "max_statement_time exceeded"),
  passes = any("Deadlock found", "Record has changed since last read"),
  types = { "VARCHAR(64)", "BIGINT", "MEDIUMTEXT", "VARCHAR(96)" },
  options = " ENGINE = InnoDB CHARACTER SET ascii COLLATE ascii_bin",
}

-- UTC_TIMESTAMP is when the statement began, so it must not wait for long. What does not fit is refused in every mode.
function dialects.mariadb.change(text, column)
  return ("SET STATEMENT sql_mode = 'STRICT_ALL_TABLES', max_statement_time = 2 FOR %s%s"):format(text,
    column and " RETURNING " .. column or "")
end

-- A table that others have made may lack what makes the lock exclusive.
local COLUMNS = [[
  SELECT t.engine, c.column_name, c.collation_name, c.character_maximum_length, k.ordinal_position, k.others,
    @@innodb_flush_log_at_trx_commit, c.data_type
  FROM information_schema.tables t JOIN information_schema.columns c USING (table_schema, table_name)
  LEFT JOIN (
    SELECT column_name, ordinal_position, COUNT(*) OVER () AS others FROM information_schema.key_column_usage
    WHERE table_schema = %s AND table_name = '%s' AND constraint_name = 'PRIMARY'
  ) k ON k.column_name = c.column_name
  WHERE table_schema = %s AND table_name = '%s'
]]

local WORDS = { resource_type = 64, resource_id = 64, ticket = 64, revision = 16, pending_writer = 78,
                active_readers = 2 ^ 16 - 1 }
local TIMES = { bigint = true, decimal = true, double = true }

function dialects.mariadb.unsafe(ask, name)
  local schema, short = name:match "^(.*)%.([^.]*)$"
  schema, short = schema and "'" .. schema .. "'" or "DATABASE()", short or name
  local columns = ask(COLUMNS:format(schema, short, schema, short))
  if type(columns) == "table" and not columns[1] then return "the table is TEMPORARY: only this connection sees it" end
  for _, found in ipairs(type(columns) == "table" and columns or {}) do
    local engine, column, collation, length = found[1], found[2], found[3], found[4]
    local position, others, flush, kind = found[5], found[6], found[7], found[8]
    local least = WORDS[column]
    local in_key = column == "resource_type" or column == "resource_id"
    if flush ~= "1" then return "innodb_flush_log_at_trx_commit is not 1: a crash loses the last locks" end
    if engine ~= "InnoDB" then return ("the table's engine is %s: use InnoDB"):format(tostring(engine)) end
    if least == 64 and not (collation or ""):find "_bin$" then
      return ("the collation of %s takes A for a"):format(column)
    end
    if least and (tonumber(length) or 0) < least then
      return ("the column %s is shorter than %d characters"):format(column, least)
    end
    if column == "acquired_at" and not TIMES[kind] then
      return ("the column acquired_at is a %s, which has no room for milliseconds: use BIGINT"):format(kind)
    end
    if (position ~= nil) ~= in_key or position and others ~= "2" then
      return "the primary key is not (resource_type, resource_id): two clients may hold one lock"
    end
  end
end

-- SQLite --------------------------------------------------------------------------------------------------------------

dialects.sqlite = {
  share = "",
  touch = "UPDATE %s SET ticket = ticket WHERE %s", -- with a WAL a transaction that only reads keeps nobody out
  now = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
  free = "1",
  dual = "",
  -- RETURNING would be executed twice: LuaSQL steps a statement once to see what it is, and once more at its end.
  insert = "INSERT INTO %s (%s) SELECT %s WHERE %s ON CONFLICT (resource_type, resource_id) DO NOTHING",
  types = { "TEXT", "INTEGER", "TEXT", "TEXT" },
  options = "",
}

local PATIENCE = 2000 -- milliseconds, of one statement, while another connection is writing

-- No query tells whether a transaction is open. But SQLite refuses to set `synchronous` in one, even to what it is. Its
-- patience comes first: to read a setting may be to read the file. A connection that has none gets it for the step.
function dialects.sqlite.enter(ask)
  local found, message, was_closed = ask "PRAGMA busy_timeout"
  if not found then return nil, message, was_closed and "closed" or "refused" end
  local timeout = found[1][1]
  if timeout == 0 then ask(("PRAGMA busy_timeout = %d"):format(PATIENCE)) end
  found, message = ask "PRAGMA synchronous"
  if found and ask(("PRAGMA synchronous = %d"):format(found[1][1])) then return timeout end
  dialects.sqlite.leave(ask, timeout)
  return nil, message, found and "in_transaction" or "refused"
end

function dialects.sqlite.leave(ask, timeout)
  if timeout == 0 then ask "PRAGMA busy_timeout = 0" end
end

-- The messages of SQLite are constants of its source.
dialects.sqlite.locked = any("database is locked", "table is locked")
dialects.sqlite.passes = any()

-- The database of the table: that in its name, or the first that has one of this name; "temp" precedes "main".
local function schema_of(ask, name)
  local schema, short = name:match "^(.*)%.([^.]*)$"
  if schema then return schema end
  local own = first(ask(("SELECT 1 FROM sqlite_temp_master WHERE lower(name) = lower('%s')"):format(short or name)))
  return own[1] and "temp" or "main"
end

function dialects.sqlite.unsafe(ask, name)
  local schema = schema_of(ask, name)
  if schema:find "^[Tt][Ee][Mm][Pp]$" then return "the table is TEMPORARY: only this connection sees it" end
  local found = first(ask(("SELECT (SELECT synchronous FROM pragma_synchronous WHERE schema = '%s'),"
    .. " (SELECT file FROM pragma_database_list WHERE lower(name) = lower('%s'))"):format(schema, schema)))
  local mode = first(ask(("PRAGMA %s.journal_mode"):format(schema)))[1]
  if found[2] == "" or found[2] == nil then return "the database is in memory: only this connection sees it" end
  if mode == "off" or mode == "memory" then return ("journal_mode is %s: a crash breaks the database"):format(mode) end
  if found[1] == 0 then return "synchronous is OFF: a crash of the machine loses locks" end
  if found[1] == 1 and mode == "wal" then return "synchronous is NORMAL with a WAL: a crash loses the last locks" end
end

-- Oracle --------------------------------------------------------------------------------------------------------------

-- CURRENT_TIMESTAMP has a time zone, and is the time of the server in that of the session. The fraction of a second
-- comes from TO_CHAR, as H2 extracts whole seconds.
local SINCE = "(CURRENT_TIMESTAMP - TIMESTAMP '1970-01-01 00:00:00 +00:00')"

dialects.oracle = {
  now = ("FLOOR(EXTRACT(DAY FROM %s) * 86400000.0 + EXTRACT(HOUR FROM %s) * 3600000.0"
    .. " + EXTRACT(MINUTE FROM %s) * 60000.0 + FLOOR(EXTRACT(SECOND FROM %s)) * 1000.0"
    .. " + CAST(TO_CHAR(CURRENT_TIMESTAMP, 'FF3') AS INTEGER))"):format(SINCE, SINCE, SINCE, SINCE),
  free = "DBMS_TRANSACTION.LOCAL_TRANSACTION_ID() IS NULL",
  dual = " FROM DUAL",
  -- A race that is lost between the condition and the key is an error, after which the row is read.
  insert = "INSERT INTO %s (%s) SELECT %s FROM DUAL WHERE %s AND NOT EXISTS (SELECT 1 FROM %s WHERE %s)",
  -- No CHAR: its trailing spaces make a ticket another one. Not more than 4000 bytes of readers: about 50.
  late = true,
  share = " FOR UPDATE",
  locked = any("ORA-00054", "ORA-30006", "ORA-02049", "Timeout trying to lock table"),
  passes = any("ORA-00060", "ORA-08177", "Deadlock detected", "Concurrent update"),
  types = { "VARCHAR2(64)", "NUMBER(16)", "VARCHAR2(4000)", "VARCHAR2(96)" },
  options = "",
}

return dialects
