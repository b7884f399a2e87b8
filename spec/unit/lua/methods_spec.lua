-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- All public methods: called with a dot instead of a colon they raise an error that says so, and each of their
-- parameters and results is annotated. The list of methods is read from the sources, so that none is left out.
local amqplocks = require "amqplocks"
local annotations = require "spec.support.annotations"
local lfs = require "lfs"
local objects = require "spec.unit.lua.objects_scene"
local process = require "spec.support.process"

local unpack = table.unpack or unpack

-- { class =, name =, block = as annotations.read has it }
local METHODS = {}
for file in lfs.dir "lua/amqplocks" do
  local text = file:find "%.lua$" and process.contents("lua/amqplocks/" .. file) or ""
  for _, block in ipairs(annotations.read(text)) do
    local fn = block.fn or { name = "" }
    if fn.owner and fn.owner:find "^%u" and fn.name:find "^%l" then
      table.insert(METHODS, { class = fn.owner, name = fn.name, block = block })
    end
  end
end

-- What a call raises; it must raise something.
local function problem_of(fn, ...)
  local fine, problem = pcall(fn, ...)
  assert.is_false(fine)
  return problem
end

describe("public methods", function()
  local all = objects()

  it("are all found in the sources, and tell of each of their parameters, and of their results", function()
    local known = {}
    for _, method in ipairs(METHODS) do
      local name, names = method.class .. "." .. method.name, {}
      known[name] = true
      for i, param in ipairs(annotations.tags(method.block, "param")) do names[i] = param.name end
      assert.same(method.block.fn.parameters, names, name)
      assert.equal(name ~= "Connection.on_lost", #annotations.tags(method.block, "return") > 0, name)
    end
    for class, object in pairs(all) do
      for key in pairs(getmetatable(object).__index) do
        local name = class .. "." .. key
        assert.is_truthy(key:find "^_" or known[name], name)
        known[name] = nil
      end
    end
    assert.is_nil(next(known)) -- of a class that has no object here
  end)

  it("say that they want a colon, whatever else comes first", function()
    for _, method in ipairs(METHODS) do
      local fn = all[method.class][method.name]
      local function throws(...)
        assert.matches("^" .. method.name .. ": must be called with a colon, [%l_]+:" .. method.name ..
          "%(.*%), not with a dot$", problem_of(fn, ...))
      end
      throws()
      for _, first in ipairs{ "db", {}, { timeout = 1 }, true } do throws(first, 2) end
      for class, object in pairs(all) do
        if class ~= method.class then throws(object, 2) end
      end
    end
  end)

  it("of other kinds of locks say of a token semaphore that it has none", function()
    local permits = all.TokenSemaphore
    assert.matches("^revoke: .*cannot be asked to release", problem_of(permits.revoke, permits, 1))
    assert.matches("^forget_fence: .*have no fence", problem_of(permits.forget_fence, permits, 1))
  end)

  it("that only other kinds have say what to call; those that nobody has are nil", function()
    local OF_LOCK = "release of the lock that was acquired"
    for class, calls in pairs {
      RWLock = { acquire = "read or write", try_acquire = "try_read or try_write", with = "with_read or with_write",
        revoke = "revoke_readers or revoke_writer", unlock = OF_LOCK },
      Semaphore = { resize = "that of conn:admin(name)", read = "acquire", release = OF_LOCK },
      TokenSemaphore = { with_write = "with" }, Mutex = { try_read = "try_acquire", lock = "acquire" },
      FastMutex = { write = "acquire" }, Side = { read = "acquire" }, All = { release = OF_LOCK },
      Admin = { acquire = "that of conn:semaphore(name)" }, Lock = { unlock = "release", close = "release" },
      Entry = { unlock = "release" }, Locks = { unlock = "release" },
    } do
      for name, instead in pairs(calls) do
        local problem = problem_of(all[class][name], all[class], { timeout = 1 })
        assert.matches("^" .. name .. ": there is no [%l_]+:" .. name .. "%(%); call ", problem)
        assert.equal(instead, problem:match "call (.*)$", class)
      end
    end
    assert.is_nil(all.RWLock.aquire)
  end)

  it("say that options come before the function", function()
    for _, call in ipairs {
      { "Semaphore", "with", { count = 2, timeout = 1 } }, { "FastMutex", "with", { timeout = "5" } },
      { "All", "with", { poll = 5 } }, { "Side", "with", { fair = true } }, { "RWLock", "with_read", { timeout = 5 } },
      { "Connection", "elect", { fenced = true }, "office" },
    } do
      local object, method, opts, name = objects()[call[1]], call[2], call[3], call[4]
      local function problem(...)
        if name then return problem_of(object[method], object, name, ...) end
        return problem_of(object[method], object, ...)
      end
      assert.matches("^" .. method .. ": options come before the function", problem(print, opts))
      for _, arguments in ipairs { {}, { { timeout = 5, path = "a" } }, { opts, 1 }, { 1, opts } } do
        assert.equal("waits", problem(print, unpack(arguments))) -- they are arguments of the function
      end
      assert.equal("waits", problem({}, print, opts))
    end
  end)

  it("take for an object what passes calls on to one", function()
    local own = setmetatable({}, { __index = objects().Lock })
    assert.is_true(own:held())
    assert.is_false(own:revoked())
  end)
end)

describe("connect", function()
  it("says that it wants a dot", function()
    assert.equal("connect: must be called with a dot, amqplocks.connect(…), not with a colon",
      problem_of(amqplocks.connect, amqplocks, "amqp://host"))
  end)

  it("shows no password of a URL, or of what is hardly one, in any argument of any call", function()
    local all = objects()
    local sem, mutex, admin, conn = all.Semaphore, all.Mutex, all.Admin, all.Connection
    for _, text in ipairs { "u:SECRET@h", "amqp:/u:SECRET@h", "amqp:u:SECRET@h", "//u:SECRET@h", "amqp://u:SEC@RET@h",
      "amqp://u:SEC/RET@h/vhost", "u:x://SECRET@h", "u:SEC\nRET@h" } do
      local shown = setmetatable({ 5 }, { __tostring = function() return text end })
      for _, given in ipairs {
        { amqplocks.connect, nil, text }, { amqplocks.connect, text, text },
        { amqplocks.connect, nil, { [text] = 1 } }, { amqplocks.connect, nil, { tls = { [text] = 1 } } },
        { amqplocks.connect, nil, { timeout = text } }, { amqplocks.connect, shown },
        { sem.try_acquire, sem, text }, { mutex.acquire, mutex, { poll = text } },
        { admin.resize, admin, text }, { admin.resize, admin, 1, text }, { conn.mutex, conn, "db", text },
      } do
        local problem = problem_of(unpack(given, 1, 4))
        assert.is_nil(problem:find("SEC", 1, true) or problem:find("RET", 1, true), problem)
        assert.matches("…@h", problem, 1, true)
      end
    end
  end)
end)
