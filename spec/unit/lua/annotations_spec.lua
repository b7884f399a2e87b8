-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The LuaLS annotations of the Lua module, compared with the functions they stand by: names and order of parameters,
-- which of them may be nil, options and what their checks accept, fields and methods of live objects, error codes,
-- drivers.
local amqplocks = require "amqplocks"
local annotations = require "spec.support.annotations"
local drivers = require "amqplocks.drivers"
local lfs = require "lfs"
local objects = require "spec.unit.lua.objects_scene"
local options = require "amqplocks.options"
local rules = require "spec.support.annotation_rules"
local testing = require "amqplocks.testing"

local unpack = table.unpack or unpack

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- The files of a folder and of its folders.
local function files(folder, list)
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" then table.insert(list, path) end
    if not name:find "^%." and lfs.attributes(path, "mode") == "directory" then files(path, list) end
  end
  return list
end

local BLOCKS, ALL = {}, {}
for _, path in ipairs(files("lua/amqplocks", {})) do
  local fine, blocks = pcall(annotations.read, read(path))
  if not fine then error(path .. ": " .. blocks, 0) end
  BLOCKS[path] = blocks
  for _, block in ipairs(blocks) do table.insert(ALL, block) end
end
local KNOWN, AMBIGUOUS = rules.definitions(ALL)
local CODES = KNOWN["amqplocks.Code"].tag.values

-- Complaints of a rule about all files, each with its file.
local function complaints(rule, ...)
  local list = {}
  for path, blocks in pairs(BLOCKS) do
    for _, problem in ipairs(rule(blocks, ...)) do table.insert(list, path .. ": " .. problem) end
  end
  return list
end

-- Live functions -----------------------------------------------------------------------------------------------------

-- A value for a required parameter of a type.
local SAMPLES = { string = "a", integer = 1, ["integer[]"] = { 1 }, ["amqplocks.Code"] = "busy" }
SAMPLES["amqplocks.Lock"] = testing.new():connect():mutex("a"):try_acquire()
SAMPLES["amqplocks.Lock|amqplocks.Connection"] = SAMPLES["amqplocks.Lock"]

-- Calls a function. Returns the schemas of the options that it checks, by the names that its errors have, and its
-- error, if it raised one. No call opens a connection.
local function schemas_of(fn, ...)
  local check, session, seen = options.check, drivers.session, {}
  options.check = function(given, schema, where)
    seen[where] = schema
    return check(given, schema, where)
  end
  drivers.session = function() error("waits", 0) end
  local fine, problem = pcall(fn, ...)
  options.check, drivers.session = check, session
  return seen, not fine and problem or nil
end

-- The public functions with annotations: { name =, params = { tags }, call(arguments) -> schemas, error }.
local function public()
  local list = {}
  for _, path in ipairs(files("lua/amqplocks", {})) do
    for _, block in ipairs(path:find "^lua/amqplocks/[^/]+$" and BLOCKS[path] or {}) do
      local fn = block.fn
      local is_method = fn and fn.is_method and fn.owner:find "^%u" and not fn.name:find "^_"
      if is_method or fn and fn.owner == "amqplocks" then
        table.insert(list, {
          name = fn.name, full = fn.owner .. "." .. fn.name, params = annotations.tags(block, "param"),
          call = function(arguments)
            local object = is_method and objects()[fn.owner]
            if fn.owner == "Mutex" and fn.name ~= "revoke" then
              object = object._connection:mutex("a", { persistent = true }) -- only those are created and destroyed
            end
            if object then return schemas_of(object[fn.name], object, unpack(arguments, 1, arguments.n)) end
            return schemas_of(amqplocks[fn.name], unpack(arguments, 1, arguments.n))
          end,
        })
      end
    end
  end
  return list
end

local PUBLIC = public()

-- Drivers ------------------------------------------------------------------------------------------------------------

-- Drivers that can be loaded here: name -> table. That of nginx needs a module of nginx when it is loaded.
local function loadable()
  local found = { select = require "spec.support.select_loop" }
  for _, name in ipairs{ "cqueues", "luv" } do
    if pcall(require, name) then found[name] = require("amqplocks.drivers." .. name) end
  end
  local before = package.loaded["ngx.semaphore"]
  package.loaded["ngx.semaphore"] = before or { new = function() return {} end }
  found.nginx = require "amqplocks.nginx.events"
  package.loaded["ngx.semaphore"], package.loaded["amqplocks.nginx.events"] = before, nil
  return found
end

describe("annotations of the Lua module", function()
  it("define each class, alias and field once", function() assert.same({}, AMBIGUOUS) end)

  it("mention only classes and aliases that there are", function()
    assert.same({}, complaints(rules.mentions, KNOWN))
  end)

  it("have the parameters of their functions, in their order", function()
    assert.same({}, complaints(rules.parameters))
  end)

  it("have the error codes of amqplocks.h, in their order", function()
    assert.same({}, rules.codes(CODES, read "src/amqplocks.h"))
  end)

  it("name only error codes that there are, and give results named code their type", function()
    assert.same({}, complaints(rules.codes_named, CODES))
  end)

  it("know the kinds of locks", function()
    local kinds = read("src/lua/lock.c"):match 'kinds%[%] = {(.-), NULL}':gsub('", "', '"|"')
    assert.equal(kinds, KNOWN["amqplocks.Lock"].fields.kind.type)
  end)
end)

describe("the annotation of a public function", function()
  it("is found for each of them", function() assert.is_true(#PUBLIC > 45, #PUBLIC) end)

  for _, fn in ipairs(PUBLIC) do
    it("marks as optional what may be nil: " .. fn.full, function()
      assert.same({}, rules.optional(fn.params, fn.name, SAMPLES, function(arguments)
        return select(2, fn.call(arguments))
      end))
    end)
  end
end)

describe("a class of options", function()
  -- The classes of options that public functions take, each with a call.
  local CALLS, CLASSES = {}, {}
  for _, fn in ipairs(PUBLIC) do
    local arguments = { n = 0 }
    for _, param in ipairs(fn.params) do
      local class = param.type:match "^amqplocks%.%u%w*Options$"
      local is_table = class or param.type == "{}"
      arguments.n = arguments.n + 1
      if not is_table and not param.optional then arguments[arguments.n] = SAMPLES[param.type] end
      if is_table or param.name == "..." then
        arguments[arguments.n] = {}
        if param.name == "..." then
          arguments.n = arguments.n + 1
          class = param.rest:match "amqplocks%.%u%w*Options" or "amqplocks.AcquireOptions"
          arguments[arguments.n] = print
        end
        CLASSES[class or "{}"] = true
        table.insert(CALLS, { fn = fn, class = class, arguments = arguments })
      end
    end
  end

  it("is checked with each call that takes one, and so is each class", function()
    assert.is_true(#CALLS > 30, #CALLS)
    for name in pairs(KNOWN) do
      local is_elsewhere = name == "amqplocks.TlsOptions" or name == "amqplocks.MetricsOptions"
      if name:find "Options$" then assert.is_true(CLASSES[name] or is_elsewhere, name) end
    end
  end)

  for _, each in ipairs(CALLS) do
    it("has the options that are checked: " .. each.fn.full, function()
      local schemas = each.fn.call(each.arguments)
      local schema = assert(schemas[each.fn.name], "no options were checked")
      local class = each.class and KNOWN[each.class] or { fields = {}, list = {} }
      assert.same({}, rules.options(class, schema, KNOWN))
    end)
  end

  it("has the options of metrics", function()
    local schemas = schemas_of(require("amqplocks.metrics").new, {})
    assert.same({}, rules.options(KNOWN["amqplocks.MetricsOptions"], schemas["metrics.new"], KNOWN))
  end)

  it("has the options of TLS", function()
    local schemas = schemas_of(amqplocks.connect, nil, { tls = {} })
    assert.same({}, rules.options(KNOWN["amqplocks.TlsOptions"], schemas["connect.tls"], KNOWN))
  end)
end)

describe("the class of an object", function()
  for name in pairs(objects()) do
    it("has the fields of a live one: " .. name, function()
      assert.same({}, rules.fields(KNOWN["amqplocks." .. name], objects()[name]))
    end)
  end
end)

describe("the class of a driver's table", function()
  local CLASS = KNOWN["amqplocks.Loop"]

  for name, driver in pairs(loadable()) do
    it("has functions that the driver has: " .. name, function()
      assert.same({}, rules.functions(CLASS, driver))
      assert.is_nil(drivers.check(driver))
      assert.same({}, rules.functions(KNOWN["amqplocks.LoopCondition"], driver.condition()))
    end)
  end

  it("requires what connect requires", function()
    for _, name in ipairs(CLASS.list) do
      local driver = {}
      for _, each in ipairs(CLASS.list) do driver[each] = each ~= name and print or nil end
      assert.equal(not CLASS.fields[name].optional, drivers.check(driver) ~= nil, name)
    end
  end)

  it("has the parameters that docs/drivers.md has", function()
    local count, page = 0, read "docs/drivers.md"
    local holders = { loop = CLASS, socket = KNOWN["amqplocks.LoopSocket"],
      condition = KNOWN["amqplocks.LoopCondition"] }
    for holder, name, list in page:gmatch "\n| `(%l+)[.:](%l+)(%b())` |" do
      local field = assert(holders[holder].fields[name], name)
      local names = {}
      for each in field.type:match("^fun(%b())"):sub(2, -2):gsub("%b()", ""):gmatch "([%l_]+)%s*:" do
        if each ~= "self" then table.insert(names, each) end
      end
      assert.equal(list, "(" .. table.concat(names, ", ") .. ")", name)
      count = count + 1
    end
    assert.equal(#CLASS.list + 3 + 2, count)
  end)
end)
