-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- How a connection of LuaSQL is asked, and what its failures are.
local sql_connection = {}

local function rows_of(cursor)
  local rows = {}
  while true do
    local row, message = cursor:fetch({}, "n")
    if not row then
      cursor:close() -- an open one would keep a lock of SQLite
      if message then return nil, message end
      return rows
    end
    table.insert(rows, row)
  end
end

--- Returns ask(text): rows or a number; or nil, the text of the error, and whether the connection was closed by its
-- owner, so that nothing was sent: LuaSQL raises an error then.
function sql_connection.asker(one)
  return function(text)
    local fine, result, message = pcall(one.execute, one, text)
    if not fine then return nil, tostring(result), true end
    if type(result) == "number" then return result end
    if result then return rows_of(result) end
    return nil, tostring(message)
  end
end

--- A message without what LuaSQL puts before it.
function sql_connection.bare(message)
  return (message:gsub("^LuaSQL: ", ""):gsub("^error executing %a+%. ", ""):gsub("%s+$", ""))
end

--- Returns nil, message, code. `message` may be of LuaSQL.
function sql_connection.failure(code, message)
  return nil, ("%s: %s"):format(code, sql_connection.bare(message)), code
end

function sql_connection.in_transaction()
  return sql_connection.failure("in_transaction",
    "the connection has an open transaction: end it, or give a connection of its own")
end

--- Returns nil, message, code for an error with which the database, or LuaSQL, has answered a question.
function sql_connection.trouble(dialect, ask, message, was_closed)
  if was_closed then return sql_connection.failure("unreachable", message) end
  if dialect.locked(message) then return sql_connection.failure("contended", message) end
  if ask("SELECT 1" .. dialect.dual) then return sql_connection.failure("refused", message) end
  if dialect.aborted and dialect.aborted(ask) then return sql_connection.in_transaction() end
  return sql_connection.failure("unreachable", message)
end

return sql_connection
