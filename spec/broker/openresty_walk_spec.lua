-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Two nginx with two workers each compete for three slots. Meanwhile clients disconnect, workers are killed and
-- configurations reloaded, at random. A request that holds a slot creates a symbolic
-- link that names the request, so that at every moment the holder is known.
local client = require "spec.support.client"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"

scene.tidy()

local SLOTS = 3
local STEPS = os.getenv "AMQPLOCKS_SOAK" and 2000 or 60

local INSIDE = { more = "lua_check_client_abort on;", content = [[
  local ffi = require "ffi"
  if not package.loaded.entering then
    package.loaded.entering = true
    ffi.cdef [=[
      int symlink(const char *, const char *);
      long readlink(const char *, char *, size_t);
      int unlink(const char *);
      int kill(int, int);
    ]=]
  end
  local path, inside
  local function enter()
    inside = ffi.C.symlink(("%d %s"):format(ngx.worker.pid(), var.request_id), path) == 0
    return inside
  end
  local function leave()
    if inside then ffi.C.unlink(path) end
    inside = false
  end
  local function who()
    local name = ffi.new "char[100]"
    local length = ffi.C.readlink(path, name, 100)
    return length > 0 and ffi.string(name, length) or nil
  end
  -- A worker that was killed closes its connection before it is gone, and leaves its link. -> what is wrong
  local function enter_alone()
    if enter() then return end
    local other = who()
    if not other then return "beside somebody who has left" end
    for _ = 1, 2000 do
      if ffi.C.kill(tonumber(other:match "%d+"), 0) ~= 0 then
        ffi.C.unlink(path)
        return not enter() and "beside somebody who came after one who died" or nil
      end
      ngx.sleep(0.005)
      if who() ~= other then return ("beside %s, who has left"):format(other) end
    end
    return ("beside %s, who stays"):format(other)
  end
  ngx.on_abort(function()
    leave()
    ngx.exit(499)
  end)
  local lock = take()
  path = var.arg_path .. lock.slot
  local wrong = enter_alone()
  ngx.sleep(math.random(10) / 1000)
  local held = lock:held()
  leave()
  if math.random(3) == 1 then lock:release() end
  if math.random(9) == 1 then error "oh" end
  ngx.say(wrong or held and "alone" or "not held")]] }

it("whatever happens, each slot is one's, and none is lost", function()
  local seed = math.floor(require("socket").gettime() * 1000) % 2 ^ 31
  math.randomseed(seed)
  local name = stage.semaphore(SLOTS)
  local servers, waiting, answered = {}, {}, 0
  for i = 1, 2 do servers[i] = scene.start{ workers = 2, locations = { ["= /inside"] = INSIDE } } end
  local path = ("/inside?timeout=60&name=%s&path=%s/%s"):format(name, servers[1].directory, client.unique("inside"))

  local function finish(request)
    local status, body = request:finish(60)
    if not status or status == 500 then return end -- its worker was killed, or its handler failed
    assert.equal("200 alone\n", status .. " " .. body, ("seed %d"):format(seed))
    answered = answered + 1
  end

  for _ = 1, STEPS do
    local server, chance = servers[math.random(2)], math.random(20)
    for _ = 1, math.random(6) do table.insert(waiting, server:begin(path)) end
    if chance == 1 then
      server:reload()
    elseif chance == 2 then
      server:kill_worker(server:workers()[1])
    elseif chance < 8 then
      table.remove(waiting, math.random(#waiting)):abort()
    end
    while #waiting > 40 do finish(table.remove(waiting, 1)) end
  end
  for _, request in ipairs(waiting) do finish(request) end
  assert.is_true(answered > STEPS)
  scene.assert_all_there(name, SLOTS)
end)
