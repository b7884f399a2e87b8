-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Two nginx with two workers each, with and without a shared connection, fight for three slots, while clients go away,
-- workers are killed and configurations reloaded, at random. Who is inside a slot locks its file as well: the kernel
-- knows if another is there, and gives the file back with whoever dies.
local client = require "spec.support.client"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"

after_each(scene.clear)
teardown(stage.check)

local SLOTS = 3
local STEPS = os.getenv "AMQPLOCKS_SOAK" and 2000 or 60

local INSIDE = { more = "lua_check_client_abort on;", content = [[
  local ffi = require "ffi"
  if not package.loaded.locking then
    package.loaded.locking = true
    ffi.cdef "int open(const char *, int, int); int flock(int, int); int close(int); int kill(int, int);"
  end
  local fd = -1
  local function leave()
    if fd >= 0 then ffi.C.close(fd) end
    fd = -1
  end
  ngx.on_abort(function()
    leave()
    ngx.exit(499)
  end)
  local lock = take()
  local path = var.arg_path .. lock.slot
  local function is_ours()
    if ffi.C.flock(fd, 6) ~= 0 then return false end
    local file = io.open(path, "w")
    file:write(ngx.worker.pid())
    file:close()
    return true
  end
  local function is_dead()
    local pid = tonumber(io.open(path):read("*a"))
    return pid and ffi.C.kill(pid, 0) ~= 0
  end
  fd = ffi.C.open(path, 66, 384)
  local alone = is_ours()
  for _ = 1, 200 do -- a worker that was killed may close its connection a moment before its files
    if alone then break end
    if is_dead() then alone = is_ours() break end
    ngx.sleep(0.005)
  end
  ngx.sleep(math.random(10) / 1000)
  local held = lock:held()
  leave()
  if math.random(3) == 1 then lock:release() end
  if math.random(9) == 1 then error "oh" end
  ngx.say(alone and held and "alone" or "not alone: " .. tostring(alone) .. " " .. tostring(held))]] }

-- What a client may see that did not go away itself.
local function is_fine(status, body)
  if status == nil or status == 500 then return true end -- its worker was killed, or its handler failed
  return status == 200 and body == "alone\n"
end

it("whatever happens, each slot is one's, and none is lost", function()
  local seed = math.floor(require("socket").gettime() * 1000) % 2 ^ 31
  math.randomseed(seed)
  local name = stage.semaphore(SLOTS)
  local servers, waiting, answered = {}, {}, 0
  for i, shared in ipairs{ false, true } do
    servers[i] = scene.start(shared, { workers = 2, locations = { ["= /inside"] = INSIDE } })
  end
  local path = ("/inside?timeout=60&name=%s&path=%s/%s"):format(name, servers[1].directory, client.unique("inside"))

  local function finish(request)
    local status, body = request:finish(60)
    assert.is_true(is_fine(status, body), ("seed %d: %s %s"):format(seed, tostring(status), body))
    if status == 200 then answered = answered + 1 end
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
