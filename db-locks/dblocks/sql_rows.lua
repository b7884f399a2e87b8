-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Rows of swapping.lua as the columns of a table, and back. Columns are texts that a person can read.
local options = require "dblocks.options"

local sql_rows = {}

local WORD = options.WORD .. "+"

--- A literal.
function sql_rows.quoted(text) return text and "'" .. text .. "'" or "NULL" end

--- The literals of ticket, acquired_at, active_readers, pending_writer and revision.
function sql_rows.values(row)
  local pending = row.pending and ("%s,%.0f"):format(row.pending, row.pending_at)
  return sql_rows.quoted(row.ticket), ("%.0f"):format(row.acquired_at),
    sql_rows.quoted(row.readers ~= "" and row.readers), sql_rows.quoted(pending), sql_rows.quoted(row.revision)
end

--- The milliseconds of a column. A text of a DECIMAL has a point, which tonumber() takes for one in some locales only.
function sql_rows.time(value) return tonumber(type(value) == "string" and value:match "^(%d+)%.%d*$" or value) end

--- A row of swapping.lua; nil: others have written something else there. Its readers, pending and revision may be parts
-- of literals. Its ticket may be any text.
function sql_rows.parsed(mine, at, readers, pending, revision)
  local row = { ticket = tostring(mine), acquired_at = sql_rows.time(at) }
  if row.ticket == "readers" then
    local rest
    row.readers, row.revision = readers or "", revision
    rest, row.inside = (row.readers .. " "):gsub(WORD .. ",%d+ +", "")
    if rest:find "[^ ]" or revision and options.checks.word(tostring(revision)) then return nil end
    if pending then
      row.pending, row.pending_at = tostring(pending):match("^(" .. WORD .. "),(%d+)$")
      row.pending_at = tonumber(row.pending_at)
      if not row.pending then return nil end
    end
    row.is_foreign = not (readers or pending or revision) or nil
  end
  return row.acquired_at and row
end

--- Whether `row` is still what it was; false: there is none.
function sql_rows.is_same(row, before)
  if not row or not before then return not row and not before end
  return row.ticket == before.ticket and row.revision == before.revision and row.acquired_at == before.acquired_at
end

return sql_rows
