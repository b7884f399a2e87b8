-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Names of machines. First those with several addresses, of which the first one is no broker's: with a hosts file of
-- this spec's. spec/unit/wire/nodes_spec has the order in which the addresses are tried. Then the machine's own.
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"

local GOOD = "127.0.0.9"
local INSIDE = 'mount --bind "$0" /etc/hosts && exec "$@"'
local can_unshare = pcall(process.shell, "unshare", "--mount", "sh", "-c", INSIDE, "/etc/hosts", "true")
local hosts_it = can_unshare and it or function(words)
  pending(words .. " (needs root, or the right to mount)")
end

stage.tidy()

local function own_hosts(lines)
  local path = os.tmpname()
  stage.undo(function() os.remove(path) end)
  process.write(path, lines)
  return "unshare", "--mount", "sh", "-c", INSIDE, path
end

-- ---- the first address ----------------------------------------------------------------------------------------------

-- Each serves `address` and `port`, in a process of its own.
local KINDS = {
  { "refuses", "" },
  { "drops what it gets", [[
    guests = {}
    repeat
      local guest = socket[address:find(":") and "tcp6" or "tcp"]()
      guest:settimeout(0.3)
      table.insert(guests, guest)
    until not guest:connect(address, port)]] },
  { "is silent", "" },
  { "resets", [[
    tell()
    while true do
      local guest = server:accept()
      guest:setoption("linger", { on = true, timeout = 0 })
      guest:close()
    end]] },
  { "hangs up", [[
    tell()
    while true do
      local guest = server:accept()
      guest:receive(1) -- what is left unread would make it a reset
      guest:settimeout(0)
      guest:receive "*a"
      guest:close()
    end]] },
}

-- Returns false if the port is a connection's at this address.
local function serve(kind, address, port)
  return kind[1] == "refuses" or process.start():begin([[
    local address, port = ...
    local socket, values = require "socket", require "spec.support.programs.values"
    server = assert(socket[address:find(":") and "tcp6" or "tcp"]())
    server:setoption("reuseaddr", true)
    if not server:bind(address, port) then return "taken" end
    assert(server:listen(]] .. (kind[1]:find "drops" and 1 or 32) .. [[))
    local function tell() spec:send(values.message()) end
  ]] .. kind[2], address, port):finish() ~= "taken"
end

-- ---- who connects ---------------------------------------------------------------------------------------------------

-- These return a function that waits for the result: true, or what is wrong.
local function lua_client(driver)
  return function(url, ...)
    local client = process.start({}, ...)
    client:begin([[
      local driver, url, name = ...
      local amqplocks = require "amqplocks"
      local function lock()
        local conn, problem = amqplocks.connect(url, { driver = driver ~= "native" and driver or nil })
        if not conn then return problem end
        local lock, message = conn:semaphore(name):try_acquire() -- by the prober, too
        local busy = lock and not amqplocks.connect():semaphore(name):try_acquire()
        if lock then lock:release() end
        conn:close()
        return busy or message or "the slot was free"
      end
      if driver == "native" then return lock() end
      return require("spec.support.loops")[driver].run(lock, 120)
    ]], driver, url, stage.semaphore(1))
    return function() return client:finish(120) end
  end
end

local CLIENTS = {
  ["a native connection"] = lua_client "native",
  ["cqueues"] = loops.cqueues.run and lua_client "cqueues",
  ["luv"] = loops.luv.run and lua_client "luv",
}

-- All begin to connect. Returns a function that waits for them.
local function connect_all(url, ...)
  local waiting = {}
  for who, client in pairs(CLIENTS) do waiting[who] = client(url, ...) end
  return function()
    local results, expected = {}, {}
    for who, wait in pairs(waiting) do results[who], expected[who] = wait(), true end
    assert.same(expected, results)
  end
end

describe("a name with several addresses", function()
  local function leads_on(kind, bad)
    local good, port
    repeat
      good = proxy.at(GOOD)
      port = good.url:match ":(%d+)[/?]?[^@]*$"
    until serve(kind, bad, tonumber(port))
    return connect_all(good.url:gsub("@[^/]*", "@several:" .. port) .. "?connection_timeout=8000",
      own_hosts(("%s several\n%s several\n"):format(bad, GOOD)))
  end

  for _, kind in ipairs(KINDS) do
    hosts_it("is connected to by another one where the first " .. kind[1], function()
      local four, six = leads_on(kind, "127.0.0.1"), leads_on(kind, "::1")
      four()
      six()
    end)
  end
end)

-- ---- the own name ---------------------------------------------------------------------------------------------------

local SET = [[python3 -c 'import os, socket; socket.sethostname(os.fsencode(os.sys.argv[1]))' "$0" && exec "$@"]]
local can_name = pcall(process.shell, "unshare", "--uts", "sh", "-c", SET, "name", "true")
local named_it = can_name and it or function(words) pending(words .. " (needs root)") end

named_it("a machine whose name no tool can show, or is cut within a character, has clients nevertheless", function()
  for _, name in ipairs { "caf\233\tb\127c\nd", ("\226\130\172"):rep(21), ("\255"):rep(64) } do
    connect_all(os.getenv "AMQP_URL", "unshare", "--uts", "sh", "-c", SET, name)()
  end
end)
