-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Locks held by requests of a real nginx. Waiting does not block the worker. However the request or the worker ends, no
-- slot is left behind, and none is given twice. A client without this library checks the state of slots.
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

scene.tidy()

it("hundreds wait at once in one worker, and each is alone inside", function()
  local name = stage.semaphore(1)
  local server, requests, occupant = scene.start(), {}, stage.occupy(name, 1)
  for i = 1, 250 do requests[i] = server:begin("/alone?timeout=600&name=" .. name) end
  assert.equal("hello\n", select(2, server:get("/hello")))
  occupant:release()
  for i = 1, 250 do
    assert.equal("200 alone\n", scene.answer(requests[i]))
  end
  scene.assert_all_there(name, 1)
end)

it("the end of a request leaves its slot, and so does a release while the request goes on", function()
  local server, name = scene.start(), nil
  for path, status in pairs{ ["/hold"] = 200, ["/error"] = 500, ["/exit"] = 403, ["/exit_elsewhere"] = 403,
    ["/exec"] = 200, ["/proxied"] = 200 } do
    name = stage.semaphore(2)
    local request, gate = scene.inside(server, path, name, 1)
    assert.equal("2\n", select(2, server:get("/try?name=" .. name)))
    scene.open(server, gate)
    assert.equal(status, (request:finish()))
    scene.assert_all_there(name, 2)
  end
  local request, gate = scene.inside(server, "/release", name)
  scene.assert_all_there(name, 2)
  assert.is_false(request:finished())
  scene.open(server, gate)
  assert.equal("1 true not_held\n", select(2, request:finish()))
end)

it("a client that goes away leaves the slot at once, where nginx looks, or when the handler ends", function()
  local name = stage.semaphore(1)
  local server = scene.start()
  scene.inside(server, "/watched", name, 1):abort()
  scene.assert_all_there(name, 1)
  local request, gate = scene.inside(server, "/hold", name, 1)
  request:abort()
  assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
  scene.open(server, gate)
  scene.assert_all_there(name, 1)
end)

it("clients that go away while their requests wait leave nothing, and the others are served", function()
  local name = stage.semaphore(2)
  local server, requests, one, two = scene.start(), {}, stage.occupy(name, 1), stage.occupy(name, 2)
  for i = 1, 60 do requests[i] = server:begin("/watched?gate=1&timeout=60&name=" .. name) end
  one:await_looks(20)
  for i = 1, 60 do
    if i % 7 > 0 then requests[i]:abort() end
  end
  one:release()
  two:release()
  scene.open(server, "1")
  for i = 7, 60, 7 do assert.equal("200 1\n", scene.answer(requests[i])) end
  scene.assert_all_there(name, 2)
end)

it("HUP leaves a slot with the request that holds it, and a request that waits in its place", function()
  local name = stage.semaphore(1)
  local server = scene.start{ workers = 2 }
  local holder, gate = scene.inside(server, "/hold", name, 1)
  local early = server:begin("/hold?gate=later&timeout=60&name=" .. name)
  local old = server:reload()
  local late = server:begin("/hold?gate=later&timeout=60&name=" .. name)
  assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
  assert.is_true(stage.held(name, 1))
  assert.is_false(holder:finished() or early:finished() or late:finished())
  scene.open(server, gate)
  scene.open(server, "later")
  for _, request in ipairs{ holder, early, late } do
    assert.equal("200 1 true\n", scene.answer(request))
  end
  scene.assert_all_there(name, 1)
  for _, pid in ipairs(old) do server:await_end(pid) end
end)

it("a worker that shuts down still takes a slot for a request that it has", function()
  local name = stage.semaphore(1)
  local server = scene.start{ locations = { ["= /late"] = [[
    gates:set("in", true)
    await_gate("reloaded")
    local lock = take()
    await_gate("go")
    ngx.say(tostring(lock:verify()))]] } }
  local request = server:begin("/late?name=" .. name)
  until_true(function() return scene.body(server, "/seen?gate=in") == "true" end)
  local old = server:reload()
  scene.open(server, "reloaded")
  stage.until_held(name, 1)
  assert.equal("200 true\n", scene.open(server, "go", request))
  server:await_end(old[1])
  scene.assert_all_there(name, 1)
end)

-- nginx without OpenResty's patches writes a warning for each ngx.sleep(0): nginx.clear looks for it.
it("a request that waits to connect again leaves no warning of nginx in the log", function()
  local server = scene.start{ locations = { ["= /again"] = [[
    local conn = assert(amqplocks.connect("amqp://127.0.0.1:1"))
    local codes = {}
    for i = 1, 8 do codes[i] = select(3, conn:semaphore("none"):acquire{ timeout = 10 }) end
    ngx.say(table.concat(codes, " "))
  ]] } }
  local status, body = server:get "/again"
  assert.same({ 200, ("unreachable "):rep(7) .. "unreachable\n" }, { status, body })
end)

it("a worker that is killed leaves its slots to those who wait elsewhere", function()
  local name = stage.semaphore(2)
  local server, other = scene.start(), scene.start()
  scene.inside(server, "/hold", name, 1)
  scene.inside(server, "/hold", name, 2)
  local waiting = {}
  for i = 1, 2 do waiting[i] = other:begin("/hold?gate=later&timeout=60&name=" .. name) end
  server:kill_worker()
  scene.open(other, "later")
  for i = 1, 2 do assert.equal(200, (waiting[i]:finish())) end
  scene.assert_all_there(name, 2)
  assert.equal("1\n", select(2, server:get("/try?name=" .. stage.semaphore(1)))) -- the new worker
end)
