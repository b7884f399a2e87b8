-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- All public methods: called with a dot instead of a colon they raise an error that says so, and each of their
-- parameters and results is annotated. The list of methods is read from the sources, so that none is left out.
local amqplocks = require "amqplocks"
local annotations = require "spec.support.annotations"
local lfs = require "lfs"
local objects = require "spec.unit.lua.objects_scene"
local process = require "spec.support.process"

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

describe("public methods", function()
  it("are all found in the sources, whatever an object has", function()
    local known = {}
    for _, method in ipairs(METHODS) do known[method.class .. "." .. method.name] = true end
    for class, object in pairs(objects()) do
      for key in pairs(getmetatable(object).__index) do
        local name = class .. "." .. key
        assert.is_truthy(key:find "^_" or known[name], name)
        known[name] = nil
      end
    end
    assert.is_nil(next(known)) -- of a class that has no object here
  end)

  -- What may come first where nothing else is meant to.
  local WRONG = { "db", 5, {}, { timeout = 1 }, print, true }
  local all = objects()
  for _, method in ipairs(METHODS) do
    it(("say that they want a colon: %s.%s"):format(method.class, method.name), function()
      local fn = all[method.class][method.name]
      local function throws(...)
        local fine, problem = pcall(fn, ...)
        assert.is_false(fine)
        assert.matches("^" .. method.name .. ": must be called with a colon, [%l_]+:" .. method.name ..
          "%(.*%), not with a dot$", problem)
      end
      throws()
      throws(nil, "more")
      throws("db")
      throws({})
      for _, first in ipairs(WRONG) do throws(first, 2) end
      for class, object in pairs(all) do
        if class ~= method.class then throws(object, 2) end
      end
    end)
  end

  it("that try take no option, and say so of one", function()
    local count = 0
    for _, method in ipairs(METHODS) do
      if method.name:find "^try_" then
        count = count + 1
        local object = objects()[method.class]
        local fine, problem = pcall(object[method.name], object, { timeout = 1 })
        assert.same({ false, method.name .. ': unknown option "timeout"' }, { fine, problem })
      end
    end
    assert.equal(8, count)
  end)

  it("of other kinds of locks say of a token semaphore that it has none", function()
    local permits = objects().TokenSemaphore
    for name, why in pairs{ revoke = "cannot be asked to release",
      forget_fence = "have no fence: a quorum queue counts their tokens" } do
      local fine, problem = pcall(permits[name], permits, 1)
      assert.is_false(fine)
      assert.matches("^" .. name .. ": .*" .. why, problem)
    end
  end)

  local OF_LOCK = "release of the lock that was acquired"
  for class, calls in pairs {
    RWLock = { acquire = "read or write", try_acquire = "try_read or try_write", with = "with_read or with_write",
      revoke = "revoke_readers or revoke_writer", release = OF_LOCK, unlock = OF_LOCK, lock = "read or write" },
    Semaphore = { resize = "that of conn:admin(name)", read = "acquire", release = OF_LOCK },
    TokenSemaphore = { with_write = "with", unlock = OF_LOCK },
    Mutex = { read = "acquire", write = "acquire", try_read = "try_acquire", try_write = "try_acquire",
      lock = "acquire", with_read = "with", with_write = "with", release = OF_LOCK, unlock = OF_LOCK },
    FastMutex = { write = "acquire", unlock = OF_LOCK },
    Side = { read = "acquire", unlock = OF_LOCK },
    All = { write = "acquire", release = OF_LOCK },
    Admin = { acquire = "that of conn:semaphore(name)" },
    Lock = { unlock = "release", close = "release" },
    Entry = { unlock = "release" },
    Locks = { unlock = "release" },
  } do
    for name, instead in pairs(calls) do
      it(("that only other kinds have say what to call: %s.%s"):format(class, name), function()
        local object = all[class]
        local fine, problem = pcall(object[name], object, { timeout = 1 })
        assert.is_false(fine)
        assert.matches("^" .. name .. ": there is no [%l_]+:" .. name .. "%(%); call ", problem)
        assert.equal(instead, problem:match "call (.*)$")
      end)
    end
  end

  it("that nobody has are nil", function() assert.is_nil(objects().RWLock.aquire) end)

  for _, call in ipairs {
    { "Semaphore", "with", { count = 2, timeout = 1 } }, { "TokenSemaphore", "with", { count = 2 } },
    { "Mutex", "with", { timeout = 5 } }, { "FastMutex", "with", { timeout = "5" } }, { "All", "with", { poll = 5 } },
    { "Side", "with", { fair = true } }, { "RWLock", "with_read", { timeout = 5 } },
    { "RWLock", "with_write", { patient = true, timeout = 5 } }, { "Connection", "elect", { fenced = true }, "office" },
  } do
    local class, method, opts, name = call[1], call[2], call[3], call[4]

    it(("say that options come before the function: %s.%s"):format(class, method), function()
      local object = objects()[class]
      local function problem_of(...)
        local fine, problem
        if name then fine, problem = pcall(object[method], object, name, ...) end
        if not name then fine, problem = pcall(object[method], object, ...) end
        assert.is_false(fine)
        return problem
      end
      assert.matches("^" .. method .. ": options come before the function", problem_of(print, opts))
      -- arguments of the function
      for _, arguments in ipairs { {}, { {} }, { { timeout = 5, path = "a" } }, { { 5 } }, { opts, 1 }, { 1, opts },
        { setmetatable({ timeout = 5 }, {}) } } do
        assert.equal("waits", problem_of(print, (table.unpack or unpack)(arguments)))
      end
      assert.equal("waits", problem_of({}, print, opts))
    end)
  end

  it("take for an object what passes calls on to one", function()
    local own = setmetatable({}, { __index = objects().Lock })
    assert.is_true(own:held())
    assert.is_false(own:revoked())
  end)
end)

describe("connect", function()
  it("says that it wants a dot", function()
    local fine, problem = pcall(amqplocks.connect, amqplocks, "amqp://host")
    assert.same({ false, "connect: must be called with a dot, amqplocks.connect(…), not with a colon" },
      { fine, problem })
  end)

  it("shows no password of a URL, or of what is hardly one, in any argument of any call", function()
    local all = objects()
    for _, text in ipairs { "u:SECRET@h", "amqp:/u:SECRET@h", "amqp:u:SECRET@h", "//u:SECRET@h", "amqp://u:SEC@RET@h",
      "amqp://u:SEC/RET@h/vhost", "u:x://SECRET@h", "u:SEC\nRET@h" } do
      for _, fn in ipairs {
        function() amqplocks.connect(nil, text) end,
        function() amqplocks.connect(text, text) end,
        function() amqplocks.connect(nil, { [text] = 1 }) end,
        function() amqplocks.connect(nil, { tls = { [text] = 1 } }) end,
        function() amqplocks.connect(nil, { timeout = text }) end,
        function() amqplocks.connect(setmetatable({ 5 }, { __tostring = function() return text end })) end,
        function() all.Semaphore:try_acquire(text) end,
        function() all.Mutex:acquire(text) end,
        function() all.Mutex:acquire{ poll = text } end,
        function() all.Admin:resize(text) end,
        function() all.Admin:resize(1, text) end,
        function() all.Connection:mutex("db", text) end,
      } do
        local fine, problem = pcall(fn)
        assert.is_false(fine)
        assert.is_nil(problem:find("SEC", 1, true) or problem:find("RET", 1, true), problem)
        assert.matches("…@h", problem, 1, true)
      end
    end
  end)
end)

it("annotations tell of each parameter of a method, and of its results", function()
  for _, method in ipairs(METHODS) do
    local name, block = method.class .. "." .. method.name, method.block
    assert.equal(#block.fn.parameters, #annotations.tags(block, "param"), name)
    assert.equal(name ~= "Connection.on_lost", #annotations.tags(block, "return") > 0, name)
  end
end)
