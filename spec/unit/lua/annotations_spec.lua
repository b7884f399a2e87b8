-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The LuaLS annotations of the Lua module, compared with what the functions do: which parameters may be nil, which
-- options there are and what their checks accept, fields of live objects, error codes, drivers. methods_spec.lua sees
-- that each method has annotations, and `make check-annotations` that they are types.
local amqplocks = require "amqplocks"
local annotations = require "spec.support.annotations"
local drivers = require "amqplocks.drivers"
local objects = require "spec.unit.lua.objects_scene"
local options = require "amqplocks.options"
local process = require "spec.support.process"
local testing = require "amqplocks.testing"

local unpack = table.unpack or unpack

local BLOCKS, PUBLIC, KNOWN = {}, {}, {}
for path in process.shell("find", "lua/amqplocks", "-name", "*.lua"):gmatch "%S+" do
  for _, block in ipairs(annotations.read(process.contents(path))) do
    table.insert(BLOCKS, block)
    local fn, class = block.fn or { name = "" }, nil
    fn.is_object = fn.is_method and fn.owner:find "^%u" ~= nil and not fn.name:find "^_"
    fn.params = annotations.tags(block, "param")
    if path:find "^lua/amqplocks/[^/]+$" and (fn.is_object or fn.owner == "amqplocks") then table.insert(PUBLIC, fn) end
    for _, tag in ipairs(block) do
      if tag.tag == "class" or tag.tag == "alias" then
        class = tag.name
        KNOWN[class] = { text = tag.text, parent = tag.type, fields = {} }
      elseif tag.tag == "field" then
        KNOWN[class].fields[tag.name] = tag
      end
    end
  end
end
for _, class in pairs(KNOWN) do
  local parent = KNOWN[class.parent]
  while parent do
    for name, field in pairs(parent.fields) do class.fields[name] = field end
    parent = KNOWN[parent.parent]
  end
end

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

local function call(fn, arguments)
  if not fn.is_object then return schemas_of(amqplocks[fn.name], unpack(arguments, 1, arguments.n)) end
  local object = objects()[fn.owner]
  if fn.owner == "Mutex" and (fn.name == "create" or fn.name == "destroy") then
    object = object._connection:mutex("a", { persistent = true }) -- only those are created and destroyed
  end
  return schemas_of(object[fn.name], object, unpack(arguments, 1, arguments.n))
end

-- What the check of an option takes, and its annotation says.
local function nothing() end

local KINDS = { string = "x", number = 1.5, integer = 1, boolean = true, ["false"] = false, ["function"] = nothing,
  table = {} }
local TABLES = { ["amqplocks.TlsOptions"] = {},
  ["amqplocks.Loop"] = { connect = nothing, condition = nothing, spawn = nothing } }

local function assert_option(field, check)
  local function is_taken(value) return check(value, "spec", "it") == nil end
  local kinds = {}
  for one in (field.type:find "^fun%(" and "fun" or field.type):gmatch "[^|]+" do
    local literal, alias = one:match '^"(.*)"$', KNOWN[one] and KNOWN[one].parent or one
    if alias:find "^fun" then kinds["function"] = true end
    if one == "amqplocks.TlsOptions" then kinds.table = true end
    if literal or TABLES[one] then assert.is_true(is_taken(literal or TABLES[one]), field.name) end
    kinds[one] = true
  end
  kinds.integer, kinds["false"] = kinds.integer or kinds.number, kinds["false"] or kinds.boolean
  for kind, sample in pairs(KINDS) do
    assert.equal(kinds.any or kinds[kind] or false, is_taken(sample), field.name .. " takes a " .. kind)
  end
end

-- A class of options has the options that a schema checks, all of them optional.
local function assert_options(class, schema)
  for name, check in pairs(schema) do
    local field = assert(class.fields[name], "not annotated: " .. name)
    assert.is_true(field.optional, name)
    if field.type ~= "number[]" then assert_option(field, check) end
  end
  for name in pairs(class.fields) do assert.is_truthy(schema[name], name) end
end

describe("the annotation of a public function", function()
  it("is found for each of them", function() assert.is_true(#PUBLIC > 45, #PUBLIC) end)

  for _, fn in ipairs(PUBLIC) do
    it("marks as optional what may be nil: " .. fn.owner .. "." .. fn.name, function()
      for missing, param in ipairs(fn.params) do
        local arguments = { n = missing }
        for i = 1, missing - 1 do arguments[i] = SAMPLES[fn.params[i].type] end
        local _, problem = call(fn, arguments)
        local is_refused = type(problem) == "string" and problem:find("^" .. fn.name .. ": ") ~= nil
        assert.is_true(param.name == "..." or is_refused ~= param.optional, param.name)
      end
    end)
  end

  it("has the options that are checked, as has each class of options", function()
    local seen, count = { ["amqplocks.TlsOptions"] = true, ["amqplocks.MetricsOptions"] = true }, 0
    for _, fn in ipairs(PUBLIC) do
      local arguments = { n = 0 }
      for _, param in ipairs(fn.params) do
        local class = param.type:match "^amqplocks%.%u%w*Options$" or param.type == "{}" and ""
        arguments.n = arguments.n + 1
        arguments[arguments.n] = not class and not param.optional and SAMPLES[param.type] or nil
        if param.name == "..." then class = param.text:match "amqplocks%.%u%w*Options" or "amqplocks.AcquireOptions" end
        if class then
          arguments[arguments.n] = {}
          if param.name == "..." then arguments[arguments.n + 1], arguments.n = print, arguments.n + 1 end
          seen[class] = true
          count = count + 1
          local schema = assert(call(fn, arguments)[fn.name], fn.name)
          assert_options(KNOWN[class] or { fields = {} }, schema)
        end
      end
    end
    assert.is_true(count > 30, count)
    for name in pairs(KNOWN) do assert.is_true(seen[name] or not name:find "Options$", name) end
  end)

  it("has the options of metrics and of TLS", function()
    assert_options(KNOWN["amqplocks.MetricsOptions"],
      schemas_of(require("amqplocks.metrics").new, {})["metrics.new"])
    assert_options(KNOWN["amqplocks.TlsOptions"], schemas_of(amqplocks.connect, nil, { tls = {} })["connect.tls"])
  end)
end)

describe("the annotation of", function()
  it("an object has the public fields of a live one, and all kinds of locks", function()
    for name, object in pairs(objects()) do
      for key in pairs(object) do
        assert.is_truthy(key:find "^_" or KNOWN["amqplocks." .. name].fields[key], name .. "." .. key)
      end
    end
    local kinds = {}
    for kind in process.contents("src/core/base/kind.c"):gmatch '{("[%l_]+"),' do table.insert(kinds, kind) end
    assert.equal(table.concat(kinds, "|"), KNOWN["amqplocks.Lock"].fields.kind.type)
  end)

  it("codes has those of amqplocks.h, in their order, and results name no others", function()
    local wanted, codes = {}, {}
    local enum = process.contents("src/amqplocks.h"):match "typedef enum al_code {(.-)}"
    for name in enum:gsub("/%*.-%*/", ""):gmatch "AL_([%u_]+)" do table.insert(wanted, name:lower()) end
    for code in KNOWN["amqplocks.Code"].text:gmatch '|%s*"([^"]*)"' do table.insert(codes, code) end
    assert.equal("ok", table.remove(wanted, 1))
    assert.same(wanted, codes)
    local all = table.concat(codes, " ") .. " "
    for _, block in ipairs(BLOCKS) do
      for _, tag in ipairs(annotations.tags(block, "return")) do
        for code in tag.text:find "amqplocks%.Code" and tag.text:gmatch '"([^"]*)"' or nothing do
          assert.is_truthy(all:find(code .. " ", 1, true), tag.text)
        end
      end
    end
  end)

  it("a driver requires what connect requires, and has the parameters that docs/drivers.md has", function()
    local fields, count = KNOWN["amqplocks.Loop"].fields, 0
    for name, field in pairs(fields) do
      local driver = {}
      for each in pairs(fields) do driver[each] = each ~= name and print or nil end
      assert.equal(not field.optional, drivers.check(driver) ~= nil, name)
      count = count + 1
    end
    local holders = { loop = fields, socket = KNOWN["amqplocks.LoopSocket"].fields,
      condition = KNOWN["amqplocks.LoopCondition"].fields }
    local page = process.contents "docs/drivers.md"
    for holder, name, list in page:gmatch "\n| `(%l+)[.:](%l+)(%b())` |" do
      local names = {}
      local types = holders[holder][name].text:match("fun(%b())"):sub(2, -2):gsub("%b()", "")
      for each in types:gmatch "([%l_]+)%s*:" do
        if each ~= "self" then table.insert(names, each) end
      end
      assert.equal(list, "(" .. table.concat(names, ", ") .. ")", name)
      count = count - 1
    end
    assert.equal(-3 - 2, count)
  end)
end)
