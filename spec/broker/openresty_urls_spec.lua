-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- In nginx: lists of nodes, functions that return URLs, and which requests have one connection of the worker's.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local URL, DEAD = os.getenv "AMQP_URL", "amqp://127.0.0.1:1"

scene.tidy()

local body = scene.body

-- How many connections of this name there are at the broker.
local function connected(name)
  return tonumber(broker.suite:ask([[
    length([P || [{client_properties, P}] <- rabbit_networking:connection_info_all([client_properties]),
      lists:keyfind(<<"connection_name">>, 1, P) =:= {<<"connection_name">>, longstr, $1}]).]], name))
end

local TRY = [[
  local function try(url, options)
    local conn, problem, code = amqplocks.connect(url, options)
    if not conn then ngx.say(code, " ", problem) return ngx.exit(200) end
    local lock, message, kind = conn:semaphore(var.arg_name):try_acquire()
    ngx.say(lock and "slot " .. lock.slot or message)
    if lock then lock:release() end
  end
]]

local function start(handlers)
  local locations = {}
  for path, code in pairs(handlers) do
    locations[path] = (TRY .. code):gsub("$url", function() return ("%q"):format(URL) end)
      :gsub("$dead", function() return ("%q"):format(DEAD) end)
  end
  return scene.start{ locations = locations }
end

it("a request goes on to the next host of a list; a malformed URL is a result, from connect", function()
  local name = stage.semaphore(1)
  local server = start {
    ["= /list"] = "try{ $dead, $url }",
    ["= /random"] = "try({ $dead, $url }, { order = 'random' })",
    ["= /bad"] = "try 'amqp://a@b@c'", ["= /empty"] = "try{}",
  }
  for _ = 1, 3 do
    assert.equal("slot 1", body(server, "/list?name=" .. name))
    assert.equal("slot 1", body(server, "/random?name=" .. name))
  end
  assert.matches("^url url: the user or the password", body(server, "/bad"))
  assert.matches("^url url: the list of URLs is empty", body(server, "/empty"))
end)

operated_it("a function of each request's own that changes the user, and the order of its list, leads to one "
  .. "connection of the worker's", function()
  local name, label = stage.semaphore(1), client.unique("rotating")
  local _, user = stage.user(".*", ".*", ".*")
  local server = start { ["= /ask"] = [[
    local round, dead = tonumber(var.arg_round), $dead
    local credentials = round % 2 == 0 and "//guest:guest@" or "//" .. var.arg_user .. ":password@"
    local url = ($url):gsub("//.-@", credentials)
    try(function() return round < 3 and { dead, url } or { url, dead } end, { name = var.arg_label })]] }
  for round = 1, 5 do
    local path = ("/ask?name=%s&label=%s&user=%s&round=%d"):format(name, label, user, round)
    assert.equal("slot 1", body(server, path))
    assert.equal(1, connected(label .. " prober"))
  end
end)

operated_it("requests with another URL, or other settings, have another connection of the worker's", function()
  local name, label, other = stage.semaphore(1), client.unique("apart"), (stage.user(".*", ".*", ".*"))
  local server = start { ["= /apart"] = ([[
    try(var.arg_other and %q or $url, { name = var.arg_label, heartbeat = tonumber(var.arg_heartbeat) })
  ]]):format(other) }
  for _, more in ipairs{ "", "&other=1", "&heartbeat=30", "", "&other=1", "&heartbeat=30" } do
    assert.equal("slot 1", body(server, ("/apart?name=%s&label=%s%s"):format(name, label, more)))
  end
  assert.equal(3, connected(label .. " holder"))
end)

operated_it("a function tells a password that changes", function()
  local name = stage.semaphore(1)
  local _, user = stage.user(".*", ".*", ".*")
  local server = start {
    ["= /set"] = "gates:set('password', var.arg_password) ngx.say('set')",
    ["= /ask"] = [[
      local user = var.arg_user
      try(function()
        ngx.sleep(0.001) -- it may wait, as whatever asks a vault would
        return (($url):gsub("//.-@", function() return "//" .. user .. ":" .. gates:get("password") .. "@" end))
      end, { name = user })]],
  }
  local path = ("/ask?name=%s&user=%s"):format(name, user)
  body(server, "/set?password=password")
  assert.equal("slot 1", body(server, path))
  broker.suite:change_password(user, "another")
  body(server, "/set?password=another")
  assert.equal("slot 1", body(server, path))
  assert.equal(1, connected(user .. " prober"), "another password needs no other connection of the worker's")
  broker.suite:close_connections_of(user, "rotated")
  until_true(function() -- the end of the worker's connections may be found only by the first call
    local answer = body(server, path)
    return answer == "slot 1", answer
  end)
end)

it("a function that throws, gives rubbish or never returns is why there is no connection", function()
  local name = stage.semaphore(1)
  local server = start {
    ["= /throws"] = "try(function() error('the vault is shut', 0) end)",
    ["= /rubbish"] = "try(function() return 5672 end)",
    ["= /later"] = [[
      local asked = false
      try(function()
        if asked then error('the vault is shut', 0) end
        asked = true
        return $url
      end, { name = "later" })]],
    ["= /never"] = [[
      local asked = false
      try(function()
        if asked then ngx.sleep(60) end
        asked = true
        return $url
      end, { name = "never", timeout = 0.5 })]],
  }
  assert.equal("url url: the function for the URL raised an error: the vault is shut", body(server, "/throws"))
  assert.matches("^url url: the function for the URL returned a number", body(server, "/rubbish"))
  assert.equal("url: the function for the URL raised an error: the vault is shut",
    body(server, "/later?name=" .. name))
  assert.equal("url: the function for the URL did not return within 0.5 s", body(server, "/never?name=" .. name))
end)

it("a function that never returns holds a request's acquire no longer than the acquire's own timeout", function()
  local name = stage.semaphore(1)
  local server = scene.start{ locations = { ["= /hasty"] = ([[
    local url, hangs = %q, false
    local conn = assert(amqplocks.connect(function()
      if hangs then ngx.sleep(60) end
      return url
    end, { timeout = 3 }))
    local semaphore = conn:semaphore(var.arg_name)
    local _, unreachable = semaphore:acquire{ timeout = 60 }
    url, hangs = %q, true
    local _, timeout = semaphore:acquire{ timeout = 0.5 }
    hangs = false
    local lock, problem
    repeat lock, problem = semaphore:acquire{ timeout = 60 } until lock or not problem:find "did not return"
    ngx.say(unreachable, ", ", timeout, ", ", lock and "slot " .. lock.slot or problem)]]):format(DEAD, URL) } }
  local answer = body(server, "/hasty?name=" .. name)
  assert.matches("^unreachable: .*, timeout: .*, slot 1$", answer)
end)
