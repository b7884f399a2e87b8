-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the complete programs in some documents unchanged, each in a Lua of its own; readme_spec runs those of the
-- README. A program is complete if it requires the module. A comment that begins with "-->" is a line that the program
-- prints.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local function read(path) return assert(process.contents(path)) end

local function programs(path)
  local all, section = {}, nil
  for line, from in (read(path) .. "\n"):gmatch "([^\n]*)\n()" do
    section = line:match "^#+ (.*)" or section
    local program = line == "```lua" and read(path):match("(.-)\n```\n", from)
    if program and program:find('require "amqplocks"', 1, true) then
      table.insert(all, { section = section, text = program .. "\n" })
    end
  end
  return all
end

local function promised(program)
  local lines = {}
  for line in program:gmatch "%-%-> ([^\n]*)\n" do table.insert(lines, line .. "\n") end
  return table.concat(lines)
end

scene.tidy()

for _, path in ipairs { "docs/production.md", "docs/coming-from.md", "docs/monitoring.md" } do
  local all = programs(path)

  for _, program in ipairs(all) do
    it(("%s has a program that works: %s, of %d"):format(path, program.section, #all), function()
      -- the semaphores that it makes
      stage.undo(function()
        local conn = stage.connect()
        for name in program.text:gmatch 'conn:admin%(? ?"([^"]+)"' do conn:admin(name):destroy() end
        for name in program.text:gmatch 'conn:token_semaphore%(? ?"([^"]+)"' do conn:token_semaphore(name):destroy() end
      end)
      local expected = promised(program.text)
      assert.is_true(expected ~= "", "it prints nothing that could be checked")
      local output, fine = process.run_lua(program.text)
      assert.is_true(fine, output)
      assert.equal(expected, output)
    end)
  end

  it(path .. " has programs", function() assert.is_true(#all > 0) end)
end

it("docs/coming-from.md has a program that works in a handler of nginx", function()
  local program
  for _, one in ipairs(programs "docs/coming-from.md") do
    program = one.section == "lua-resty-lock" and one.text or program
  end
  local server = nginx.start {
    main = "env AMQP_URL;",
    locations = { ["= /"] = { content = "local print = ngx.say\n" .. program } },
  }
  local status, body = server:get "/"
  assert.equal(200, status, server:errors())
  assert.equal(promised(program), body)
end)

operated_it("docs/production.md has a policy that applies to no queue of a lock", function()
  local command = read("docs/production.md"):match "set_policy (.-)\nrabbitmqctl"
  local pattern, definition = command:match "\n%s+'([^']*)'[^']*'([^']*)'"
  local policy, name = client.unique "policy", client.unique "lock"
  stage.undo(function() broker.suite:clear_policy("/", policy) end)
  broker.suite:set_policy("/", policy, pattern, definition)
  local holder = stage.connect()
  stage.undo(function()
    stage.destroy(stage.connect(), name)
    for _, role in ipairs { "-f-fastmutex", "-w-rwbell", "-work" } do stage.delete(name .. role) end
  end)
  assert(holder:admin(name):resize(1))
  assert(holder:token_semaphore(name):resize(1))
  for _, kind in ipairs { "semaphore", "mutex", "token_semaphore" } do stage.take(holder[kind](holder, name)) end
  stage.take(holder:fast_mutex(name .. "-f"))
  assert(holder:rwlock(name):read())
  assert(holder:rwlock(name .. "-w"):write())
  gate.make_bell("mutex", name)
  gate.make_bell("read", name .. "-w")
  assert(stage.client():declare(name .. "-work", { durable = true }))
  local rows
  until_true(function()
    rows = broker.suite:strings([=[
      [[N, "=", case rabbit_policy:name(Q) of none -> <<"none">>; P -> P end] || Q <- rabbit_amqqueue:list(),
        {_, _, _, N} <- [amqqueue:get_name(Q)], string:prefix(N, $1) =/= nomatch]]=], name)
    local text = table.concat(rows, " ")
    return text:find(name .. "-work=" .. policy, 1, true), text
  end, 60)
  assert.is_true(#rows >= 11)
  for _, row in ipairs(rows) do
    if row ~= name .. "-work=" .. policy then assert.matches("=none$", row) end
  end
end)
