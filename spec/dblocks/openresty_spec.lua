-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in nginx, over lua-resty-redis (which Debian calls nginx.redis) and its cosockets.
local dblocks = require "dblocks"
local nginx = require "spec.support.nginx"
local redis = require "spec.support.servers.redis"
local until_true = require "spec.support.until"

local PRELUDE = [[
  local dblocks, redis = require "dblocks", require "nginx.redis"
  local var = ngx.var
  local function connect()
    local one = redis:new()
    one:set_timeout(2000)
    local connected, problem = one:connect("127.0.0.1", %d)
    if not connected then return nil, problem end
    return one
  end
  local pooled = {}
  for _, command in ipairs { "eval", "evalsha" } do
    pooled[command] = function(_, ...)
      local one, problem = connect()
      if not one then return nil, problem end
      local reply, message = one[command](one, ...)
      if reply == nil then one:close() else one:set_keepalive(10000, 20) end
      return reply, message
    end
  end
  package.loaded["spec.kept"] = package.loaded["spec.kept"] or dblocks.redis(function() return pooled end)
  local function kept() return package.loaded["spec.kept"] end
  local function locks() return dblocks.redis(connect) end
  local function say(first, message, code) ngx.say(first and tostring(first) or code, " ", message or "") end
]]

local LOCATIONS = {
  ["= /hello"] = "ngx.say('hello')",
  ["= /acquire"] = [[
    local lock, message, code = locks():mutex("nginx", var.arg_id):acquire{ timeout = tonumber(var.arg_timeout) or 20,
      poll = 0.02, ticket = var.arg_ticket }
    say(lock and lock.ticket, message, code)]],
  ["= /release"] = [[
    local lock = assert(locks():mutex("nginx", var.arg_id):try_acquire{ ticket = var.arg_ticket })
    say(lock:release())]],
  ["= /kept"] = [[
    say(kept():mutex("nginx", "kept"):with({ timeout = 60, poll = 0.01 }, function(lock) return lock:verify() end))]],
  ["= /list"] = "for _, entry in ipairs(locks():list()) do ngx.say(entry.kind, ' ', entry.ticket) end",
}

local server, web

setup(function()
  server = assert(redis.start("--save", ""))
  web = nginx.start{ workers = 1, prelude = PRELUDE:format(server.address), locations = LOCATIONS }
end)

teardown(function()
  nginx.clear()
  server:stop()
end)

local function body(request)
  local status, text = request:finish()
  assert.equal(200, status, text .. web:errors())
  return text
end

local function ask(path) return body(web:begin(path)) end

describe("in nginx", function()
  it("a lock is held from one request to another, by its ticket, and seen from outside", function()
    assert.equal("nightly \n", ask "/acquire?id=1&ticket=nightly")
    local outside = dblocks.redis(redis.connect(server.address))
    assert.equal("nightly", outside:list()[1].ticket)
    local _, _, code = outside:mutex("nginx", 1):try_acquire()
    assert.equal("busy", code)
    assert.equal("write nightly\n", ask "/list")
    assert.equal("true \n", ask "/release?id=1&ticket=nightly")
    assert.same({}, outside:list())
  end)

  it("a request that waits does not block the worker", function()
    local outside = dblocks.redis(redis.connect(server.address))
    local lock = assert(outside:mutex("nginx", 2):try_acquire())
    local waiting = web:begin "/acquire?id=2&timeout=60&ticket=patient"
    for _ = 1, 20 do
      assert.equal("hello\n", ask "/hello")
      assert.is_false(waiting:finished())
    end
    assert.equal(("timeout timeout: after 0.05 seconds nginx 2 is held by %s\n"):format(lock.ticket),
      ask "/acquire?id=2&timeout=0.05")
    assert(lock:release())
    assert.equal("patient \n", body(waiting))
    assert(outside:break_lock("nginx", 2, "patient"))
  end)

  it("an object that is kept in a module serves one request after another, and ten at a time", function()
    for _ = 1, 10 do assert.equal("true true\n", ask "/kept") end
    local requests = {}
    for i = 1, 10 do requests[i] = web:begin "/kept" end
    for _, request in ipairs(requests) do assert.equal("true true\n", body(request)) end
    assert.same({}, dblocks.redis(redis.connect(server.address)):list())
  end)

  it("tickets name nginx, the host and the worker", function()
    local ticket = ask "/acquire?id=4":match "^(%S+) \n$"
    assert.equal(tostring(web:workers()[1]), ticket:match "^nginx@.*:(%d+)%.%x+$")
    assert(dblocks.redis(redis.connect(server.address)):break_lock("nginx", 4, ticket))
  end)

  it("a Redis that is away is told, and the worker lives on", function()
    server:stop()
    until_true(function() return not pcall(redis.connect, server.address) end)
    assert.is_truthy(ask "/acquire?id=5&timeout=0.2":find "^unreachable unreachable: ")
    assert.equal("hello\n", ask "/hello")
    server = assert(redis.start("--save", ""))
  end)
end)
