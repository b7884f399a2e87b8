-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What annotations (annotations.lua) must say of the code that they stand by. Each rule returns a list of complaints.
local annotations = require "spec.support.annotations"

local rules = {}

local function complain(list, format, ...) table.insert(list, format:format(...)) end

-- The text -----------------------------------------------------------------------------------------------------------

--- The parameters of a function are annotated all, or none, by their names and in their order.
function rules.parameters(blocks)
  local problems = {}
  for _, block in ipairs(blocks) do
    local names = {}
    for i, tag in ipairs(annotations.tags(block, "param")) do names[i] = tag.name end
    local annotated = table.concat(names, ", ")
    local wanted = block.fn and table.concat(block.fn.parameters, ", ")
    if not wanted and #names > 0 then complain(problems, "line %d: no function has these parameters", block.line) end
    if wanted and #names > 0 and annotated ~= wanted then
      complain(problems, "line %d: %s has the parameters (%s), annotated are (%s)", block.line, block.fn.name, wanted,
        annotated)
    end
    if not wanted and #annotations.tags(block, "return") > 0 then
      complain(problems, "line %d: no function returns that", block.line)
    end
  end
  return problems
end

local function inherit(class, known, problems)
  local tag = class.tag
  local parent = tag.parent and known[tag.parent]
  if tag.parent and not parent then complain(problems, "line %d: there is no %s", tag.line, tag.parent) end
  for _, name in ipairs(parent and parent.list or {}) do
    if not class.fields[name] then
      class.fields[name] = parent.fields[name]
      table.insert(class.list, name)
    end
  end
end

--- Classes and aliases: name -> { kind =, fields = { name -> tag }, tag =, list = { names in order } }.
function rules.definitions(blocks)
  local known, problems = {}, {}
  local class
  for _, block in ipairs(blocks) do
    class = nil
    for _, tag in ipairs(block.tags) do
      if tag.tag == "class" or tag.tag == "alias" then
        if known[tag.name] then complain(problems, "line %d: there are two %s", tag.line, tag.name) end
        class = { kind = tag.tag, fields = {}, list = {}, tag = tag }
        known[tag.name] = class
      elseif tag.tag == "field" then
        if not class then complain(problems, "line %d: the field %s belongs to no class", tag.line, tag.name) end
        if class and class.fields[tag.name] then complain(problems, "line %d: there are two %s", tag.line, tag.name) end
        if class then
          class.fields[tag.name] = tag
          table.insert(class.list, tag.name)
        end
      end
    end
  end
  for _, each in pairs(known) do inherit(each, known, problems) end
  return known, problems
end

--- Each class and alias that a type mentions is defined.
function rules.mentions(blocks, known)
  local problems = {}
  for _, block in ipairs(blocks) do
    for _, tag in ipairs(block.tags) do
      local types = tag.type or ""
      for _, result in ipairs(tag.results or {}) do types = types .. " " .. result.type end
      for _, name in ipairs(annotations.names(types)) do
        if not known[name] then complain(problems, "line %d: there is no %s", tag.line, name) end
      end
    end
  end
  return problems
end

-- Whether a comment about results names codes: it then stands behind a type that is a code.
local function returns_code(tag)
  for _, result in ipairs(tag.results) do
    if result.type:find("amqplocks.Code", 1, true) then return true end
  end
  return false
end

--- A code that a comment about results names is one of the alias; a result that is named `code` has its type.
function rules.codes_named(blocks, codes)
  local problems, is_code = {}, {}
  for _, code in ipairs(codes) do is_code[code] = true end
  for _, block in ipairs(blocks) do
    for _, tag in ipairs(annotations.tags(block, "return")) do
      for _, result in ipairs(tag.results) do
        if result.name == "code" and not result.type:find("amqplocks.Code", 1, true) then
          complain(problems, "line %d: the result code is a %s", tag.line, result.type)
        end
      end
      for code in returns_code(tag) and tag.rest:gmatch '"([^"]*)"' or function() end do
        if not is_code[code] then complain(problems, "line %d: there is no code %s", tag.line, code) end
      end
    end
  end
  return problems
end

--- The alias has the codes of the header, in their order.
function rules.codes(values, header)
  local wanted, problems = {}, {}
  for name in header:match("typedef enum al_code {(.-)}"):gsub("/%*.-%*/", ""):gmatch "AL_([%u_]+)" do
    if name ~= "OK" then table.insert(wanted, name:lower()) end
  end
  if #wanted < 20 then complain(problems, "the header has only %d codes", #wanted) end
  if table.concat(values, " ") ~= table.concat(wanted, " ") then
    complain(problems, "annotated are %s; the header has %s", table.concat(values, " "), table.concat(wanted, " "))
  end
  return problems
end

-- Live objects -------------------------------------------------------------------------------------------------------

local function nothing() end

-- A table of options that stands for a class.
local TABLES = {
  ["amqplocks.TlsOptions"] = {},
  ["amqplocks.Loop"] = { connect = nothing, condition = nothing, spawn = nothing },
}

local SAMPLES = { string = "x", number = 1.5, integer = 1, boolean = true, ["false"] = false, ["function"] = nothing,
  table = {} }

-- The kinds of samples that a type takes, and its literals.
local function taken(type, known)
  local kinds, literals, tables = {}, {}, {}
  for _, one in ipairs(annotations.alternatives(type)) do
    local alias = known[one] and known[one].kind == "alias" and known[one].tag.type
    if alias and alias:find "^fun" or one:find "^fun" then
      kinds["function"] = true
    elseif one:find '^"' then
      table.insert(literals, one:sub(2, -2))
    elseif one == "any" then
      for kind in pairs(SAMPLES) do kinds[kind] = true end
    elseif known[one] then
      table.insert(tables, TABLES[one])
      if TABLES[one] and next(TABLES[one]) == nil then kinds.table = true end
    elseif one ~= "nil" then
      kinds[one] = true
    end
  end
  if kinds.number then kinds.integer = true end
  if kinds.boolean then kinds["false"] = true end
  return kinds, literals, tables
end

-- Whether a check takes a value.
local function takes(check, value) return check(value, "spec", "it") == nil end

--- An option's type takes what its check takes, and nothing else.
function rules.option(field, check, known)
  local problems = {}
  local kinds, literals, tables = taken(field.type, known)
  for kind, sample in pairs(SAMPLES) do
    if takes(check, sample) ~= (kinds[kind] == true) then
      complain(problems, "%s is annotated as %s, and a %s is %s", field.name, field.type, kind,
        kinds[kind] and "refused" or "accepted")
    end
  end
  for _, literal in ipairs(literals) do
    if not takes(check, literal) then complain(problems, '%s: "%s" is refused', field.name, literal) end
  end
  for _, sample in ipairs(tables) do
    if not takes(check, sample) then complain(problems, "%s: a %s is refused", field.name, field.type) end
  end
  return problems
end

--- A class of options has the options that a schema checks, all of them optional.
function rules.options(class, schema, known)
  local problems = {}
  for name, check in pairs(schema) do
    local field = class.fields[name]
    if not field then
      complain(problems, "the option %s is not annotated", name)
    else
      if not field.optional then complain(problems, "the option %s is not marked as optional", name) end
      for _, problem in ipairs(rules.option(field, check, known)) do table.insert(problems, problem) end
    end
  end
  for _, name in ipairs(class.list) do
    if not schema[name] then complain(problems, "there is no option %s", name) end
  end
  return problems
end

local function fits(value, type_text)
  for _, one in ipairs(annotations.alternatives(type_text)) do
    if one:find "%[%]$" and type(value) == "table" then return true end
    if one == type(value) or one == "integer" and type(value) == "number" and value % 1 == 0 then return true end
    if one == '"' .. tostring(value) .. '"' then return true end
  end
  return false
end

--- The public fields of an object are those of its class, and of their types.
function rules.fields(class, object)
  local problems = {}
  for key, value in pairs(object) do
    local field = class.fields[key]
    if key:sub(1, 1) ~= "_" and not field then complain(problems, "the field %s is not annotated", key) end
    if field and not fits(value, field.type) then
      complain(problems, "%s is annotated as %s, and is %s", key, field.type, tostring(value))
    end
  end
  for _, name in ipairs(class.list) do
    local field = class.fields[name]
    if object[name] == nil and not field.optional and not fits(nil, field.type) then
      complain(problems, "there is no field %s", name)
    end
  end
  return problems
end

--- A driver's table has the functions that a class of functions asks for.
function rules.functions(class, object)
  local problems = {}
  for _, name in ipairs(class.list) do
    local field = class.fields[name]
    local kind = type(object[name])
    if not (kind == "function" or kind == "nil" and field.optional) then
      complain(problems, "%s is annotated as a function, and is a %s", name, kind)
    end
  end
  return problems
end

--- What calls of a function with nil for each parameter show: a required one raises an error that begins with the
-- function's name. `call` is called with a list of arguments, and returns the error, or nil.
function rules.optional(params, name, samples, call)
  local problems = {}
  for missing, param in ipairs(params) do
    local arguments = { n = missing }
    for i = 1, missing - 1 do arguments[i] = samples[params[i].type] end
    local problem = param.name ~= "..." and call(arguments)
    local is_refused = type(problem) == "string" and problem:find("^" .. name .. ": ") ~= nil
    if param.name ~= "..." and is_refused == param.optional then
      complain(problems, "%s: nil for %s is %s", name, param.name, is_refused and "refused" or "accepted")
    end
  end
  return problems
end

return rules
