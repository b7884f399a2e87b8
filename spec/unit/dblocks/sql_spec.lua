-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Locks in SQL, without a database: what is refused before one is asked, and what is written.
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local sql_rows = require "dblocks.sql_rows"

local function cursor_of(rows, close)
  local cursor, nth = { close = close or function() end }, 0
  function cursor.fetch()
    nth = nth + 1
    return rows[nth]
  end
  return cursor
end

-- A connection of LuaSQL that notes what it executes, but for the question for the time, which comes first; each other
-- statement gets the next of these answers: a number, the rows of a query, or the text of an error.
local function connection(name, ...)
  local answers, one, was_told = { ... }, { statements = {} }, false
  function one:execute(text)
    if not was_told then
      was_told = true
      return cursor_of { { "1700000000000" } }
    end
    table.insert(self.statements, text)
    local answer = answers[math.min(#self.statements, #answers)]
    if type(answer) == "string" then return nil, "LuaSQL: " .. answer end
    if type(answer) ~= "table" then return answer end
    return cursor_of(answer, function() one.closed = (one.closed or 0) + 1 end)
  end
  return setmetatable(one, { __tostring = function() return name .. " connection (0x1)" end })
end

describe("dblocks.sql", function()
  it("needs a dialect that it knows, and takes no name of a table that could be more than that", function()
    local one = connection("PostgreSQL", 0)
    for _, opts in ipairs{ {}, { dialect = "mysql" }, { dialect = true } } do
      assert.has_error(function() dblocks.sql(one, opts) end)
    end
    assert.error_matches(function() dblocks.sql(one) end, 'sql: option dialect must be one of "postgres", "mariadb"')
    for _, name in ipairs{ "a b", "a;b", "a'b", 'a"b', "a-b", "", ("a"):rep(65) } do
      assert.has_error(function() dblocks.sql(one, { dialect = "postgres", table = name }) end)
    end
  end)

  it("refuses odbc, and says why", function()
    local odbc = connection("ODBC", 0)
    local why = "luasql.odbc is refused: it cuts times to 32 bits"
    assert.error_matches(function() dblocks.sql(odbc, { dialect = "postgres" }) end, why, 1, true)
    local locks = dblocks.sql(function() return odbc end, { dialect = "postgres" })
    assert.error_matches(function() locks:list() end, why, 1, true)
    assert.same({}, odbc.statements)
  end)

  it("asks once for a mutex, and closes its cursor", function()
    local one = connection("PostgreSQL", { { "1700000000123" } }, 1)
    local lock = assert(dblocks.sql(one, { dialect = "postgres", table = "my.locks" }):mutex("a", 1):try_acquire())
    assert.equal(1700000000.123, lock.acquired_at)
    assert.same({ 1, 1 }, { #one.statements, one.closed })
    assert.is_truthy(one.statements[1]:find("^INSERT INTO my%.locks "))
    assert.is_true(lock:release())
    assert.same({ 2, 1 }, { #one.statements, one.closed })
    local only = ("ticket = '%s' AND acquired_at = 1700000000123 "):format(lock.ticket)
    assert.is_truthy(one.statements[2]:find(only, 1, true))
  end)

  it("reads the row after an error, and finds a race that was lost", function()
    local row = { { "1700000000123", "1", "other", "1700000000000" } }
    local one = connection("MySQL", "Deadlock gefunden", row, row)
    fails("busy", dblocks.sql(one, { dialect = "mariadb" }):mutex("a", 1):try_acquire())
    assert.equal(2, #one.statements)
  end)

  it("repeats a statement after an error that is not of a race, and refuses after some", function()
    local none = { { "1700000000123", "1" } }
    local one = connection("MySQL", "Deadlock gefunden", none, { { "1700000000123" } })
    assert(dblocks.sql(one, { dialect = "mariadb" }):mutex("a", 1):try_acquire())
    assert.equal(3, #one.statements)
    local answers = {}
    for i = 1, 16, 2 do answers[i], answers[i + 1] = "kein Recht", none end
    one = connection("MySQL", (table.unpack or unpack)(answers))
    local message = fails("refused", dblocks.sql(one, { dialect = "mariadb" }):mutex("a", 1):try_acquire())
    assert.is_truthy(message:find("kein Recht", 1, true))
    assert.equal(16, #one.statements)
  end)

  it("is in doubt of a change, if nothing is answered then, and of an acquire whose time cannot be read", function()
    for _, case in ipairs{
      { "in_doubt", "postgres", "try_acquire", "weg" }, { "unreachable", "postgres", "try_read", "weg" },
      { "in_doubt", "postgres", "try_read", { { "1700000000123", "1" } }, "weg" },
      { "in_doubt", "oracle", "try_acquire", 1, "weg" },
    } do
      local locks = dblocks.sql(connection("x", case[4], case[5]), { dialect = case[2] })
      local object = case[3] == "try_read" and locks:rwlock("a", 1) or locks:mutex("a", 1)
      fails(case[1], object[case[3]](object))
    end
  end)
end)

describe("a step of a reader", function()
  -- The text that is written over a row of such readers.
  local function written(readers, step)
    local one = connection("PostgreSQL", { { "1700000000123", "1", "readers", "1", readers, nil, "0f" } }, { { "1" } })
    local locks = dblocks.sql(one, { dialect = "postgres" })
    step(locks:rwlock("a", 1))
    return one.statements[2]:match "active_readers = '([^']*)'" or one.statements[2]:match "^%u+"
  end

  it("puts one entry into the text, or takes one out, and leaves the others as they are", function()
    assert.equal("aa,3 a,1 ba,2 me,1700000000123", written("aa,3 a,1 ba,2", function(rwlock)
      assert(rwlock:try_read { ticket = "me" })
    end))
    for before, after in pairs{
      ["aa,3 a,1 ba,2"] = "aa,3 ba,2", ["a,1 aa,3"] = "aa,3", ["aa,3  a,1"] = "aa,3 ", ["ba,1 a,1 aa,1"] = "ba,1 aa,1",
      ["a,1"] = "DELETE",
    } do
      assert.equal(after, written(before, function(rwlock)
        local lock = require "dblocks.lock"
        local held = lock.new(rwlock._locks, rwlock._resource, "read", "a", 1)
        assert(held:release())
      end))
    end
  end)
end)

it("a race that was lost is followed by a short sleep, which may fail, and another attempt", function()
  local row = { { "1700000000123", "1", "readers", "1", "a,1", nil, "0f" } }
  for _, sleep in ipairs{ function() end, function() error("not here", 0) end } do
    local slept, one = {}, connection("PostgreSQL", row, {}, row, {}, row, { { "1" } })
    local locks = dblocks.sql(one, { dialect = "postgres", sleep = function(seconds)
      table.insert(slept, seconds)
      sleep()
    end })
    assert(locks:rwlock("a", 1):try_read())
    assert.equal(6, #one.statements)
    assert.equal(2, #slept)
    for _, seconds in ipairs(slept) do assert.is_true(seconds >= 0 and seconds < 0.1) end
  end
end)

describe("a row", function()
  local function again(row)
    local ticket, at, readers, pending, revision = sql_rows.values(row)
    local function bare(literal) return literal ~= "NULL" and literal:match "^'(.*)'$" or nil end
    return sql_rows.parsed(bare(ticket), at, bare(readers), bare(pending), bare(revision))
  end

  it("is read as it was written", function()
    for _, row in ipairs{
      { ticket = "a@b:1.c", acquired_at = 1700000000123 },
      { ticket = "readers", acquired_at = 1, readers = "", inside = 0, revision = "0f" },
      { ticket = "readers", acquired_at = 1, readers = "a,1 b+-_.@:,2", inside = 2, pending = "w", pending_at = 3,
        revision = "0f" },
    } do
      assert.same(row, again(row))
    end
  end)

  it("of others is none: nothing of it gets into a statement", function()
    for _, row in ipairs{ { "t", "2024-01-01 00:00:00" }, { "readers", 1, "a,1 b" }, { "readers", 1, "a,1b,2" },
      { "readers", 1, "a',1" }, { "readers", 1, "a,1", "w'x,1", "0f" }, { "readers", 1, "a,1", "w", "0f" },
      { "readers", 1, "a,1", nil, "0' OR '1" } } do
      assert.is_nil(sql_rows.parsed((table.unpack or unpack)(row, 1, 5)))
    end
  end)
end)
