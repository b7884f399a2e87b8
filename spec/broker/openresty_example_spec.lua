-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The example for nginx, unchanged except for ports and names. The backend is this process: it counts simultaneous
-- requests, and answers when the test tells it to.
local line = require "spec.support.line"
local nginx = require "spec.support.nginx"
local process = require "spec.support.process"
local socket = require "socket"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local SECONDS = 60

-- ---- the backend ----------------------------------------------------------------------------------------------------

local listener, port, there, most, come -- `there`: requests that have not been answered

before_each(function()
  listener = assert(socket.bind("127.0.0.1", 0, 128))
  listener:settimeout(0)
  port = select(2, listener:getsockname())
  there, most, come = {}, 0, 0
end)

-- How many are there. Whom nginx has hung up on is gone.
local function look()
  local new = listener:accept()
  while new do
    new:settimeout(0)
    table.insert(there, new)
    come = come + 1
    new = listener:accept()
  end
  for i = #there, 1, -1 do
    local _, problem = there[i]:receive(65536)
    if problem == "closed" then table.remove(there, i):close() end
  end
  most = math.max(most, #there)
  return #there
end

local function until_there(number)
  until_true(function() return look() == number, ("%d are there"):format(#there) end, SECONDS)
end

local function answer()
  local first = table.remove(there, 1)
  first:settimeout(SECONDS)
  assert(first:send("HTTP/1.0 200 OK\r\n\r\nserved"))
  first:close()
end

local function close_backend()
  listener:close()
  for _, one in ipairs(there) do one:close() end
  there = {}
end

stage.tidy(nginx.clear, close_backend)

-- ---- the example ----------------------------------------------------------------------------------------------------

local function contents(path) return assert(process.contents(path)) end

local example = contents "examples/openresty/nginx.conf"
local checkout = process.shell("pwd"):match "%S+"
local is_root = process.shell("id", "-u"):match "^0"

-- Has to be there once: what a test changes is what people would change.
local function replace(text, old, new)
  local from, to = text:find(old, 1, true)
  assert(from and not text:find(old, to + 1, true), old)
  return text:sub(1, from - 1) .. new .. text:sub(to + 1)
end

-- The example, for a server of ours and the backend above.
local function configure(server)
  local text = replace(example, "listen 8080;", ("listen 127.0.0.1:%d;"):format(server.port))
  text = replace(text, "server 127.0.0.1:8081;", ("server 127.0.0.1:%d;"):format(port))
  return replace(text, "worker_processes auto;", "worker_processes 2;" .. (is_root and " user root;" or ""))
end

-- `changes`: what else to replace, and by what.
local function start(name, changes)
  local function text(server)
    local all = replace(configure(server), "pid nginx.pid;", "pid pid;")
    all = replace(all, "# lua_package_path", ('lua_package_path "%s/lua/?.lua;%s/lua/?/init.lua;;"; #')
      :format(checkout, checkout))
    all = replace(all, "# lua_package_cpath", ('lua_package_cpath "%s/build/luajit/?.so;;"; #'):format(checkout))
    all = replace(all, 'semaphore("backend")', ("semaphore(%q)"):format(name))
    for old, new in pairs(changes or {}) do all = replace(all, old, new) end
    return all
  end
  return nginx.start { workers = 2, text = text }
end

local function status(request) return (request:finish(SECONDS)) end

-- Everybody waits for long, but who says otherwise.
local PATIENT = { ["timeout = 5 "] = "timeout = tonumber(ngx.var.arg_wait) or 60 " }

describe("the example for nginx", function()
  it("lets as many through as there are places, from two hosts", function()
    local name = stage.semaphore(3)
    local hosts, requests = { start(name, PATIENT), start(name, PATIENT) }, {}
    for i = 1, 24 do requests[i] = hosts[i % 2 + 1]:begin "/" end
    for left = 24, 1, -1 do
      until_there(math.min(left, 3))
      answer()
    end
    for _, request in ipairs(requests) do
      local got, body = request:finish(SECONDS)
      assert.equal("200 served", got .. " " .. body)
    end
    assert.same({ 3, 24 }, { most, come })
  end)

  it("turns a waiter away in the end, and says when to come again; a waiter that goes away is forgotten", function()
    local name = stage.semaphore(1)
    local server, occupant = start(name, PATIENT), stage.occupy(name, 1)
    local got, _, headers = server:get "/?wait=0.2"
    assert.same({ 503, "5" }, { got, headers["retry-after"] })
    assert.not_matches("%[error%]", server:errors())
    local function until_waiting(count)
      until_true(function() return select(2, line.at(name)) == count end, SECONDS)
    end
    until_waiting(0)
    local first = server:begin "/"
    until_waiting(1)
    first:abort()
    until_waiting(0)
    local second = server:begin "/"
    until_waiting(1)
    occupant:release()
    until_there(1)
    answer()
    assert.equal(200, status(second))
    assert.equal(1, come)
  end)

  it("gives the place of who goes away while he is served to the next", function()
    local name = stage.semaphore(1)
    local server = start(name, PATIENT)
    local first = server:begin "/"
    until_there(1)
    local second = server:begin "/"
    first:abort()
    until_true(function() return look() == 1 and come == 2, server:errors() end, SECONDS)
    answer()
    assert.equal(200, status(second))
    assert.equal(1, most)
  end)

  it("keeps the place of an answer that takes longer than the broker waits for a silent client", function()
    local name = stage.semaphore(1)
    local server = start(name, { ["connect()"] = "connect(nil, { heartbeat = 3 })",
      ["if lock then"] = "ngx.ctx.lock = lock if lock then",
      ["proxy_pass"] = "log_by_lua_block { ngx.log(ngx.ERR, 'held: ', ngx.ctx.lock:held()) } proxy_pass" })
    local first = server:begin "/"
    until_there(1)
    socket.sleep(10)
    assert.is_true(stage.held(name, 1))
    answer()
    assert.equal(200, status(first))
    until_true(function() return server:errors():find "held: true", server:errors() end, SECONDS)
  end)

  it("gives the places back when the backend dies", function()
    local name = stage.semaphore(2)
    local server = start(name, PATIENT)
    local first, second = server:begin "/", server:begin "/"
    until_there(2)
    close_backend()
    assert.equal(502, status(first))
    assert.equal(502, status(second))
    assert.equal(502, (server:get "/"))
    stage.until_free(name, 1)
    stage.until_free(name, 2)
  end)

  it("keeps a place while memory is tidied up", function()
    local name = stage.semaphore(1)
    local server = start(name, { ["timeout = 5 "] = PATIENT["timeout = 5 "], ["location / {"] = [[
      location = /tidy { content_by_lua_block { collectgarbage() collectgarbage() ngx.say(ngx.worker.pid()) } }
      location / {]] })
    local first, tidied, count = server:begin "/", {}, 0
    until_there(1)
    until_true(function()
      local _, pid = server:get "/tidy"
      if not tidied[pid] then count = count + 1 end
      tidied[pid] = true
      return count == 2
    end, SECONDS)
    assert.equal(503, (server:get "/?wait=0.2"))
    assert.is_true(stage.held(name, 1))
    answer()
    assert.equal(200, status(first))
  end)

  it("turns all away, and says why in the log, without a broker and without a semaphore", function()
    local name = stage.semaphore(1)
    local server = start(name .. "-none")
    local got, _, headers = server:get "/"
    assert.same({ 503, "5" }, { got, headers["retry-after"] })
    assert.matches("%[error%][^\n]* not_found: ", server:errors())
    local lost = start(name, { ["env AMQP_URL;"] = "env AMQP_URL=amqp://127.0.0.1:1;" })
    assert.equal(503, (lost:get "/"))
    assert.matches("%[error%][^\n]* unreachable: ", lost:errors())
    assert.equal(0, come)
  end)

  it("is started as its page says", function()
    local commands = contents "examples/openresty/README.md":match "```sh\n(.-)```"
    local probe = assert(socket.bind("127.0.0.1", 0))
    local server = { port = select(2, probe:getsockname()) }
    probe:close()
    local directory = process.directory()
    stage.undo(function()
      process.shell("sh", "-c", '[ ! -e "$1/nginx.pid" ] || kill "$(cat "$1/nginx.pid")"; rm -rf "$1"', "sh", directory)
    end)
    process.write(directory .. "/changed.conf", configure(server))
    commands = replace(commands, "export AMQP_URL=amqp://guest:guest@127.0.0.1\n", "")
    commands = replace(commands, "python3 -m http.server 8081 &", "")
    commands = replace(commands, "http://127.0.0.1:8080/", ("-s http://127.0.0.1:%d/"):format(server.port))
    commands = commands:gsub("%$PWD/examples/openresty/nginx%.conf", directory .. "/changed.conf")
      :gsub("/tmp/limited", directory)
    local path = directory .. "/output"
    io.open(path, "w"):close()
    os.execute(([[env -u MAKEFLAGS -u MAKELEVEL -u SANITIZE bash -ec '%s' launch bash -ec '%s' >%s 2>&1 &]])
      :format(process.LAUNCH, commands:gsub("'", "'\\''"), path))
    until_true(function() return look() == 1, contents(path) end, 60)
    answer()
    until_true(function() return contents(path):find "served", contents(path) end, SECONDS)
    assert.matches("^everything that make needs is installed\nHTTP/1.1 200 OK\r\n.*served$", contents(path))
    until_true(function() return not io.open(directory .. "/nginx.pid") end, SECONDS)
    assert.is_true(stage.connect():admin("backend"):destroy())
  end)
end)

describe("the page for nginx", function()
  it("begins with the example", function()
    local block = contents "docs/openresty.md":match "```nginx\n(.-)```"
    local lines = 0
    for text in block:gmatch "[^\n]+" do
      local _, found = example:gsub(text:gsub("%p", "%%%0"):gsub("^%s+", "%%f[%%S]"), "")
      assert.is_true(found >= 1, text)
      lines = lines + 1
    end
    assert.equal(11, lines)
  end)
end)
