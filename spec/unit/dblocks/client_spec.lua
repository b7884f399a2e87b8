-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The connections of db-locks: which are used again, and which are given up.
local client = require "dblocks.client"

-- A function that makes numbered clients, and a record of those that were closed.
local function maker()
  local made, closed = 0, {}
  return function()
    made = made + 1
    return { number = made }
  end, closed, function(one) table.insert(closed, one.number) end
end

-- Lua 5.1 cannot yield across pcall; LuaJIT can.
local yielding_it = (_VERSION ~= "Lua 5.1" or rawget(_G, "jit")) and it or pending

local function number_of(one) return one.number end

local function breaks(_, code) return nil, code .. ": gone", code end

describe("a client that a function makes", function()
  it("is made at its first use, and used again", function()
    local make, closed, close = maker()
    local clients = client.new(make, close)
    assert.is_true(clients:renews())
    assert.equal(1, clients:use(number_of))
    assert.equal(1, clients:use(number_of))
    assert.same({}, closed)
  end)

  for _, code in ipairs{ "in_doubt", "unreachable" } do
    it("is closed after " .. code .. ", and another is made", function()
      local make, closed, close = maker()
      local clients = client.new(make, close)
      local result, message, told = clients:use(breaks, code)
      assert.same({ code .. ": gone", code }, { message, told })
      assert.is_nil(result)
      assert.same({ 1 }, closed)
      assert.equal(2, clients:use(number_of))
    end)
  end

  it("is used again after other failures", function()
    local make, closed, close = maker()
    local clients = client.new(make, close)
    clients:use(breaks, "refused")
    assert.equal(1, clients:use(number_of))
    assert.same({}, closed)
  end)

  it("is closed after an error, which comes out", function()
    local make, closed, close = maker()
    local clients = client.new(make, close)
    local fine, problem = pcall(clients.use, clients, function() error("oh", 0) end)
    assert.same({ false, "oh" }, { fine, problem })
    assert.same({ 1 }, closed)
  end)

  yielding_it("is another one for each step at the same time", function()
    local make, _, close = maker()
    local clients = client.new(make, close)
    local thread = coroutine.wrap(function() return clients:use(function(one)
      coroutine.yield(one.number)
      return one.number
    end) end)
    assert.equal(1, thread())
    assert.equal(2, clients:use(number_of))
    assert.equal(1, thread())
  end)

  it("cannot be made: unreachable, with the reason", function()
    for _, make in ipairs{ function() return nil, "no route" end, function() error("no route", 0) end } do
      local result, message, code = client.new(make):use(number_of)
      assert.is_nil(result)
      assert.equal("unreachable", code)
      assert.is_truthy(message:find("no route", 1, true))
    end
  end)

  it("that was idle for long is asked whether it lives", function()
    local time, now = os.time, 1000
    os.time = function() return now end -- luacheck: ignore 122
    finally(function() os.time = time end) -- luacheck: ignore 122
    local make, closed, close = maker()
    local asked, lives = {}, true
    local clients = client.new(make, close, function(one)
      table.insert(asked, one.number)
      return lives
    end)
    clients:use(number_of)
    now = now + 4
    assert.equal(1, clients:use(number_of))
    assert.same({}, asked)
    now = now + 5
    assert.equal(1, clients:use(number_of))
    assert.same({ 1 }, asked)
    now, lives = now + 5, false
    assert.equal(2, clients:use(number_of))
    assert.same({ 1 }, closed)
  end)

  it("is closed with the object", function()
    local make, closed, close = maker()
    local clients = client.new(make, close)
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
    local _, closed, close = maker()
    local clients = client.new({ number = 7 }, close)
    assert.is_false(clients:renews())
    assert.equal(7, clients:use(number_of))
    clients:use(breaks, "in_doubt")
    assert.equal("unreachable", select(3, clients:use(number_of)))
    clients:close()
    assert.same({}, closed)
  end)

  it("is not used by two steps at once", function()
    local clients = client.new { number = 7 }
    local fine, problem = clients:use(function() return pcall(clients.use, clients, number_of) end)
    assert.is_false(fine)
    assert.is_truthy(problem:find("another coroutine", 1, true))
    assert.equal(7, clients:use(number_of))
  end)
end)
