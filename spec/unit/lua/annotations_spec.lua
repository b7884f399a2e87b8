-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The LuaLS annotations of the Lua module, compared with the functions they stand by: names and order of parameters,
-- which of them may be nil, options and what their checks accept, fields and methods of live objects, error codes,
-- drivers. Each rule is seen to complain of wrong annotations.
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

-- What a rule says of a text.
local function said(rule, text, ...) return rule(annotations.read(text), ...) end

describe("the reader of annotations", function()
  it("tells the type from the rest", function()
    for text, type in pairs{
      ['string? code "lost"'] = "string?", ['"a"|"b" of it'] = '"a"|"b"', ["{ a: b[] }[]|nil, x"] = "{ a: b[] }[]|nil",
      ["fun(a: b, ...): c?, d rest"] = "fun(a: b, ...): c?, d", ["(fun(): x)|false no"] = "(fun(): x)|false",
      ["amqplocks.Lock|nil, string"] = "amqplocks.Lock|nil", ["...any"] = "...any",
    } do
      assert.equal(type, (annotations.type_of(text)))
    end
    assert.has_error(function() annotations.type_of "| x" end, "no type: | x")
    assert.same({ '"a"', "false", "string", "nil" }, annotations.alternatives '"a"|false|string?')
  end)

  it("refuses an annotation that it does not know", function()
    assert.has_error(function() annotations.read "---@parm x string\nlocal x" end, "line 1: unknown annotation @parm")
  end)

  it("reads continued lines, names of results, and functions", function()
    local block = annotations.read("--- Does.\n---@param a? string that\n---  goes on\n" ..
      "---@return X|nil, string? why\n---  too\nfunction A:b(a) end")[1]
    assert.same({ owner = "A", name = "b", is_method = true, is_local = false, parameters = { "a" } }, block.fn)
    assert.same({ "that goes on", true }, { block.tags[1].rest, block.tags[1].optional })
    assert.same({ { type = "X|nil" }, { type = "string?", name = "why" } }, block.tags[2].results)
    assert.equal("too", block.tags[2].rest)
  end)
end)

describe("annotations of the Lua module", function()
  it("define each class, alias and field once", function()
    local text = "---@class B\n\n---@class B\n---@field x string\n---@field x string\n\n---@field y string\n"
    assert.same({ "line 3: there are two B", "line 5: there are two x", "line 7: the field y belongs to no class" },
      select(2, rules.definitions(annotations.read(text))))
    assert.same({}, AMBIGUOUS)
  end)

  it("mention only classes and aliases that there are", function()
    assert.same({ "line 1: there is no amqplocks.No" },
      said(rules.mentions, "---@return amqplocks.Lock|amqplocks.No it\nfunction a() end", KNOWN))
    assert.same({}, complaints(rules.mentions, KNOWN))
  end)

  it("have the parameters of their functions, in their order", function()
    local text = "---@param a string\n---@param b string\nlocal function f(%s) end"
    for list, count in pairs{ ["a, b"] = 0, ["b, a"] = 1, ["a"] = 1, ["a, b, ..."] = 1 } do
      assert.equal(count, #said(rules.parameters, text:format(list)), list)
    end
    assert.same({ "line 2: no function has these parameters" }, said(rules.parameters, "---@param a string\nlocal x"))
    assert.same({ "line 2: no function returns that" }, said(rules.parameters, "---@return string\nlocal x"))
    assert.same({}, complaints(rules.parameters))
  end)

  it("have the error codes of amqplocks.h, in their order", function()
    local header = read "src/amqplocks.h"
    assert.same({}, rules.codes(CODES, header))
    local swapped = { unpack(CODES) }
    swapped[1], swapped[2] = swapped[2], swapped[1]
    assert.equal(1, #rules.codes(swapped, header))
    assert.equal(1, #rules.codes({ unpack(CODES, 2) }, header))
  end)

  it("name only error codes that there are, and give results named code their type", function()
    local text = '---@return true|nil, %s code "busy", "%s"\nfunction a() end'
    assert.same({}, said(rules.codes_named, text:format("amqplocks.Code?", "lost"), CODES))
    assert.same({ "line 1: there is no code bsy" },
      said(rules.codes_named, text:format("amqplocks.Code?", "bsy"), CODES))
    assert.same({ "line 1: the result code is a string?" },
      said(rules.codes_named, text:format("string?", "lost"), CODES))
    assert.same({}, complaints(rules.codes_named, CODES))
  end)

  it("know the kinds of locks", function()
    local kinds = read("src/lua/lock.c"):match 'kinds%[%] = {(.-), NULL}':gsub('", "', '"|"')
    assert.equal(kinds, KNOWN["amqplocks.Lock"].fields.kind.type)
  end)
end)

describe("the annotation of a public function", function()
  it("is found for each of them", function() assert.is_true(#PUBLIC > 45, #PUBLIC) end)

  it("is complained of where it is wrong about nil", function()
    local refuses, accepts = function() return "f: x must be a string" end, function() return "waits" end
    local function param(optional) return { { name = "x", type = "string", optional = optional } } end
    assert.same({ "f: nil for x is refused" }, rules.optional(param(true), "f", SAMPLES, refuses))
    assert.same({ "f: nil for x is accepted" }, rules.optional(param(false), "f", SAMPLES, accepts))
    assert.same({}, rules.optional(param(true), "f", SAMPLES, accepts))
    assert.same({}, rules.optional(param(false), "f", SAMPLES, refuses))
  end)

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

  it("is complained of where it differs from what is checked", function()
    local checks = options.checks
    local schema = { wait = checks.seconds, many = checks.whole(1, 2), kind = checks.one_of("a", "b"),
      on = checks.callable, is = checks.boolean, text = checks.string }
    local function class(text) return (rules.definitions(annotations.read("---@class A\n" .. text))).A end
    local right = { wait = "wait? number", many = "many? integer", kind = 'kind? "a"|"b"', on = "on? fun()",
      is = "is? boolean", text = "text? string" }
    local function complained(name, line)
      local lines = {}
      for each, fine in pairs(right) do table.insert(lines, "---@field " .. (each == name and line or fine)) end
      if name == "more" then table.insert(lines, "---@field " .. line) end
      return rules.options(class(table.concat(lines, "\n") .. "\n"), schema, {})
    end
    assert.same({}, complained())
    assert.same({ "there is no option more" }, complained("more", "more? string"))
    assert.same({ "the option wait is not marked as optional" }, complained("wait", "wait number"))
    assert.same({ "wait is annotated as integer, and a number is accepted" }, complained("wait", "wait? integer"))
    assert.same({ "many is annotated as number, and a number is refused" }, complained("many", "many? number"))
    assert.same({ 'kind: "c" is refused' }, complained("kind", 'kind? "a"|"b"|"c"'))
    assert.equal(3, #complained("kind", "kind? string|boolean"))
    assert.equal(2, #complained("is", "is? true"))
    assert.equal(2, #complained("on", "on? string"))
    assert.equal("the option text is not annotated", complained("text", "txt? string")[1])
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
  it("is complained of where it has other fields", function()
    local class = (rules.definitions(annotations.read("---@class A\n---@field a string\n---@field b integer|nil\n"))).A
    assert.same({}, rules.fields(class, { a = "x", _private = 1 }))
    assert.same({ "there is no field a" }, rules.fields(class, {}))
    assert.same({ "the field c is not annotated" }, rules.fields(class, { a = "x", c = 1 }))
    assert.same({ "b is annotated as integer|nil, and is 1.5" }, rules.fields(class, { a = "x", b = 1.5 }))
  end)

  for name in pairs(objects()) do
    it("has the fields of a live one: " .. name, function()
      assert.same({}, rules.fields(KNOWN["amqplocks." .. name], objects()[name]))
    end)
  end
end)

describe("the class of a driver's table", function()
  local CLASS = KNOWN["amqplocks.Loop"]

  it("is complained of where a function is missing", function()
    local function nothing() end
    assert.same({}, rules.functions(CLASS, { connect = nothing, condition = nothing, spawn = nothing }))
    assert.same({ "spawn is annotated as a function, and is a nil" },
      rules.functions(CLASS, { connect = nothing, condition = nothing }))
  end)

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
