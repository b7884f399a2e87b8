-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The connections of db-locks: which are used again, and which are given up.
local client = require "dblocks.client"

local made, closed, close

-- Makes numbered clients.
local function make()
  made = made + 1
  return { number = made }
end

before_each(function()
  made, closed = 0, {}
  close = function(one) table.insert(closed, one.number) end
end)

-- Lua 5.1 cannot yield across pcall; LuaJIT can.
local yielding_it = (_VERSION ~= "Lua 5.1" or rawget(_G, "jit")) and it or pending

local function tell() return 1000 end

local function number_of(one) return one.number end

local function breaks(_, _, code) return nil, code .. ": gone", code end

describe("a client that a function makes", function()
  it("is made at its first use, used again, also after most failures, and closed after others", function()
    local clients = client.new(make, close, tell)
    assert.is_true(clients:renews())
    for _ = 1, 2 do assert.equal(1, clients:use(number_of)) end
    clients:use(breaks, "refused")
    assert.equal(1, clients:use(number_of))
    assert.same({}, closed)
    for i, code in ipairs{ "in_doubt", "unreachable" } do
      assert.same({ nil, code .. ": gone", code }, { clients:use(breaks, code) })
      assert.equal(i, #closed)
      assert.equal(i + 1, clients:use(number_of))
    end
  end)

  it("is closed after an error, which comes out", function()
    local clients = client.new(make, close, tell)
    local fine, problem = pcall(clients.use, clients, function() error("oh", 0) end)
    assert.same({ false, "oh" }, { fine, problem })
    assert.same({ 1 }, closed)
  end)

  yielding_it("is another one for each step at the same time", function()
    local clients = client.new(make, close, tell)
    local thread = coroutine.wrap(function() return clients:use(function(one)
      coroutine.yield(one.number)
      return one.number
    end) end)
    assert.equal(1, thread())
    assert.equal(2, clients:use(number_of))
    assert.equal(1, thread())
  end)

  for code, makes in pairs{
    refused = {
      function() return undefined.connect() end, -- luacheck: ignore 113
      function() return require "no.such.module" end,
      function() return nil, 'PostgreSQL: FATAL:  database "nosuch" does not exist' end,
      function() return nil, 'FATAL:  password authentication failed for user "u"' end,
      function() return nil, "MySQL: Access denied for user 'u'@'localhost'" end,
      function() return nil, "MySQL: Unknown database 'nosuch'" end,
      function() error("redis error: WRONGPASS invalid username-password pair", 0) end,
    },
    unreachable = {
      function() return nil, "no route" end, function() error("no route", 0) end,
      function() return nil, "no route, in a language of its own" end,
    },
  } do
    it("cannot be made, or can never be: " .. code .. ", with the reason", function()
      for _, one in ipairs(makes) do
        local result, message, told = client.new(one, nil, tell):use(number_of)
        assert.same({ nil, code }, { result, told })
        assert.is_truthy(message:find("^" .. code .. ": no connection to the database: %w"), message)
      end
    end)
  end

  it("is asked for the time of the database when it is new, and after 5 seconds; one that is dead is closed", function()
    local now, asked, lives = 1000, {}, true
    local clients = client.new(make, close, function(one)
      table.insert(asked, one.number)
      if lives then return now * 1000 + 7 end
      lives = true
      return nil, "unreachable: dead", "unreachable"
    end, function() return now end)
    local function time_of(_, time) return time end
    assert.equal(1000007, clients:use(time_of))
    now = now + 4.5
    assert.equal(1004507, clients:use(time_of))
    assert.same({ 1 }, asked)
    now = now + 1
    assert.equal(1005507, clients:use(time_of))
    assert.same({ 1, 1 }, asked)
    now, lives = now + 5, false
    assert.equal(2, clients:use(number_of))
    assert.same({ 1 }, closed)
  end)

  it("that has come too late with a step is told the time, and asked again, three times", function()
    local times, clients = {}, client.new(make, nil, tell, function() return 0 end)
    local function step(_, time)
      table.insert(times, time)
      return "late", 5000 * #times
    end
    assert.equal("contended", select(3, clients:use(step)))
    assert.same({ 1000, 5000, 10000 }, times)
  end)

  it("is closed with the object", function()
    local clients = client.new(make, close, tell)
    clients:use(function()
      assert.equal(2, clients:use(number_of))
      clients:close()
      assert.same({ 2 }, closed)
    end)
    assert.same({ 2, 1 }, closed)
    assert.equal("closed", select(3, clients:use(number_of)))
  end)
end)

describe("a client that was given", function()
  it("is never closed, and has no successor", function()
    local clients = client.new({ number = 7 }, close, tell)
    assert.is_false(clients:renews())
    assert.equal(7, clients:use(number_of))
    clients:use(breaks, "in_doubt")
    assert.equal("unreachable", select(3, clients:use(number_of)))
    clients:close()
    assert.same({}, closed)
  end)

  it("is not used by two steps at once", function()
    local clients = client.new({ number = 7 }, nil, tell)
    local fine, problem = clients:use(function() return pcall(clients.use, clients, number_of) end)
    assert.is_false(fine)
    assert.is_truthy(problem:find("another coroutine", 1, true))
    assert.equal(7, clients:use(number_of))
  end)
end)
