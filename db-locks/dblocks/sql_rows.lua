-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Rows of swapping.lua as the columns of a table, and back. Columns are texts that a person can read.
local options = require "dblocks.options"

local sql_rows = {}

local STAMPED = "(" .. options.WORD .. "+),(%d+)"

--- A literal.
function sql_rows.quoted(text) return text and "'" .. text .. "'" or "NULL" end

local function stamped(mine, at) return ("%s,%.0f"):format(mine, at) end

-- The oldest reader is the first, as a person will read this.
local function readers_text(readers)
  local list = {}
  for mine, since in pairs(readers or {}) do table.insert(list, { mine, since }) end
  if not list[1] then return nil end
  table.sort(list, function(a, b)
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[1] < b[1]
  end)
  for i, each in ipairs(list) do list[i] = stamped(each[1], each[2]) end
  return table.concat(list, " ")
end

local function readers_of(text)
  local readers = {}
  local rest = (text or ""):gsub(STAMPED, function(mine, since)
    readers[mine] = tonumber(since)
    return ""
  end)
  return not rest:find "[^ ]" and readers or nil
end

--- The literals of ticket, acquired_at, active_readers, pending_writer and revision.
function sql_rows.values(row)
  return sql_rows.quoted(row.ticket), ("%.0f"):format(row.acquired_at), sql_rows.quoted(readers_text(row.readers)),
    sql_rows.quoted(row.pending and stamped(row.pending, row.pending_at)), sql_rows.quoted(row.revision)
end

--- The milliseconds of a column. A text of a DECIMAL has a point, which tonumber() takes for one in some locales only.
function sql_rows.time(value) return tonumber(type(value) == "string" and value:match "^(%d+)%.%d*$" or value) end

--- A row of swapping.lua; nil: others have written something else there. Its readers, pending and revision may be parts
-- of literals. Its ticket may be any text.
function sql_rows.parsed(mine, at, readers, pending, revision)
  local row = { ticket = tostring(mine), acquired_at = sql_rows.time(at) }
  if row.ticket == "readers" then
    row.readers, row.revision = readers_of(readers), revision
    if pending then
      row.pending, at = tostring(pending):match("^" .. STAMPED .. "$")
      row.pending_at = tonumber(at)
      if not row.pending then return nil end
    end
    row.is_foreign = not (readers or pending or revision) or nil
    if not row.readers or revision and options.checks.word(tostring(revision)) then return nil end
  end
  return row.acquired_at and row
end

--- Whether `row` is still what it was; false: there is none.
function sql_rows.is_same(row, before)
  if not row or not before then return not row and not before end
  return row.ticket == before.ticket and row.revision == before.revision and row.acquired_at == before.acquired_at
end

return sql_rows
