-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The example program in C, without Lua, built against the library as users build it: without faults and with faults.
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local program = require "spec.support.program"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local URL = os.getenv "AMQP_URL"
local worker

setup(function() worker = program.build("examples/c/worker.c", "amqplocks") end)
after_each(function()
  program.clear()
  stage.clear()
end)
teardown(program.remove)
teardown(stage.check)

local function start(url, ...)
  return program.start({ AMQP_URL = url, LD_LIBRARY_PATH = program.LIB }, worker, ...)
end

-- Runs one that must fail with this status and this code.
local function fails(status, code, url, ...)
  local got, output = start(url, ...):wait()
  assert.equal(status, got, output)
  assert.matches("^worker: " .. code, output)
end

-- One that works until it is told otherwise.
local function working(name, url)
  local one = start(url or URL, name, "1000")
  one:await("working in slot 1 of \"" .. name:gsub("%p", "%%%0") .. "\"")
  assert.is_true(stage.held(name, 1))
  return one
end

describe("a worker in C", function()
  it("takes a slot, works, and lets go", function()
    local name = stage.semaphore(1)
    local status, output = start(URL, name, "0"):wait()
    assert.equal(0, status, output)
    assert.equal(('working in slot 1 of "%s"\ndone\n'):format(name), output)
    assert.is_true(stage.free(name, 1))
  end)

  it("makes the semaphore as large as it is told", function()
    local name = stage.semaphore(1)
    assert.equal(0, (start(URL, name, "0", "3"):wait()))
    assert.equal(3, stage.connect():admin(name):slots())
    assert.equal(0, (start(URL, name, "0", "1"):wait()))
    assert.equal(1, stage.connect():admin(name):slots())
  end)

  it("is seen to hold it, and lets go when it is asked to end", function()
    local name = stage.semaphore(1)
    local one = working(name)
    stage.fails("busy", stage.connect():semaphore(name):try_acquire())
    one:signal("TERM")
    local status, output = one:wait()
    assert.equal(0, status, output)
    assert.matches("\ndone\n$", output)
    assert.is_true(stage.free(name, 1))
  end)

  it("waits for a slot, and takes it when it comes free", function()
    local name = stage.semaphore(1)
    local held = stage.occupy(name, 1)
    local one = start(URL, name, "1000")
    held:await_looks(1)
    assert.equal("", one:output())
    held:release()
    stage.ring(name, 1)
    one:await("working in slot 1")
    assert.is_true(stage.held(name, 1))
  end)

  it("stops waiting when it is asked to end, and leaves nothing", function()
    local name = stage.semaphore(1)
    local held = stage.occupy(name, 1)
    local one = start(URL, name, "1000")
    held:await_looks(1)
    one:signal("INT")
    local status, output = one:wait()
    assert.equal(1, status, output)
    assert.equal("worker: interrupted\n", output)
    held:release()
    assert.is_true(stage.free(name, 1))
  end)

  it("that is killed leaves its slot to the next", function()
    local name = stage.semaphore(1)
    local one, another = working(name), start(URL, name, "1000")
    one:signal("KILL")
    assert.equal(128 + 9, (one:wait()))
    another:await("working in slot 1")
    assert.is_true(stage.held(name, 1))
  end)

  it("knows when its connection is gone, and with it the lock", function()
    local name, between = stage.semaphore(1), proxy.start()
    local one = working(name, between.url)
    between:cut(1)
    local status, output = one:wait()
    assert.equal(2, status, output)
    assert.matches("\nworker: lost: ", output)
    stage.until_free(name, 1)
  end)

  operated_it("knows when an operator took the lock away", function()
    local name = stage.semaphore(1)
    local one = working(name)
    broker.suite:delete_queue(stage.holder(name, 1))
    local status, output = one:wait()
    assert.equal(2, status, output)
    assert.matches("\nworker: lost: ", output)
  end)

  it("says what is wrong", function()
    local name = stage.semaphore(1)
    fails(1, "usage: ", URL, name)
    fails(1, "unreachable: no broker at 127.0.0.1:1\n", "amqp://127.0.0.1:1", name, "0")
    fails(1, "auth: ", (URL:gsub("//.-@", "//guest:wrong@")), name, "0")
    fails(1, "not_found: ", URL, name .. "-none", "0")
    fails(1, 'the name starts with "amq%."', URL, "amq.none", "0")
    fails(1, "url: the URL does not begin with amqp://", "http://localhost", name, "0")
    fails(1, "unreachable: none of 2 hosts: no broker at 127.0.0.1:1; no broker at 127.0.0.1:2\n",
      "amqp://127.0.0.1:1,127.0.0.1:2", name, "0")
  end)

  it("goes on to the next node that its URL names", function()
    local name = stage.semaphore(1)
    working(name, (URL:gsub("@", "@127.0.0.1:1,")))
  end)

  it("is the same when all of it is linked statically", function()
    if program.sanitized then return pending("sanitizers are shared libraries") end
    local name = stage.semaphore(1)
    local static = program.build("examples/c/worker.c", "amqplocks", { static = true })
    local status, output = program.run({ AMQP_URL = URL }, static, name, "0")
    assert.equal(0, status, output)
    assert.is_true(stage.free(name, 1))
  end)
end)

describe("a job in C, step by step,", function()
  local steps

  setup(function() steps = program.build("examples/c/steps.c", "amqplocks") end)

  local function run(url, ...) return program.start({ AMQP_URL = url, LD_LIBRARY_PATH = program.LIB }, steps, ...) end

  local function free(name) assert(stage.connect():mutex(name):try_acquire()):release() end

  local function at_work(name, url)
    local one = run(url or URL, name, "100000")
    one:await("^working\n")
    stage.fails("busy", stage.connect():mutex(name):try_acquire())
    return one
  end

  -- It ends so, and leaves nothing.
  local function ends(one, name, status, words)
    local got, output = one:wait(30)
    assert.equal(status, got, output)
    assert.matches(words, output)
    free(name)
  end

  it("does its steps, and releases the mutex", function()
    local name = stage.mutex()
    ends(run(URL, name, "3"), name, 0, "^working\n$")
    ends(run(URL, name, "0"), name, 0, "^working\n$")
  end)

  it("begins before there is a broker", function()
    local name, between = stage.mutex(), proxy.shut()
    local one = run(between.url, name, "1")
    between:open()
    ends(one, name, 0, "^working\n$")
  end)

  it("stops between two steps at a signal", function()
    for _, signal in ipairs { "TERM", "INT" } do
      local name = stage.mutex()
      local one = at_work(name)
      one:signal(signal)
      ends(one, name, 3, "\nsteps: after %d+ of 100000: stopped\n$")
    end
  end)

  it("stops between two steps when it is asked for the mutex", function()
    local name = stage.mutex()
    local one = at_work(name)
    assert.is_true(stage.connect():mutex(name):revoke { wait = 30 })
    ends(one, name, 3, ": stopped\n$")
  end)

  it("stops while it waits", function()
    local name = stage.mutex()
    local held = stage.take(stage.connect():mutex(name))
    local one = run(URL, name, "1")
    until_true(function() return stage.client():exists(name .. "-mutexbell") end)
    one:signal("TERM")
    local status, output = one:wait()
    assert.same({ 1, "steps: stopped while it waited\n" }, { status, output })
    assert(held:release())
    free(name)
  end)

  it("stops when its lock is lost, and says so", function()
    local name, between = stage.mutex(), proxy.start()
    local one = at_work(name, between.url)
    between:cut(1)
    local status, output = one:wait(30)
    assert.equal(2, status, output)
    assert.matches("\nsteps: after %d+ of 100000: lost\n", output)
  end)

  it("says what is wrong", function()
    for words, arguments in pairs {
      ["^steps: usage: steps NAME COUNT\n$"] = { URL, "only a name" },
      ['^steps: the name starts with "amq%."'] = { URL, "amq.none", "1" },
      ["^steps: url: the URL does not begin"] = { "http://localhost", "none", "1" },
      ["^steps: auth: "] = { (URL:gsub("//.-@", "//guest:wrong@")), "none", "1" },
    } do
      local status, output = run((table.unpack or unpack)(arguments)):wait(30)
      assert.equal(1, status, output)
      assert.matches(words, output)
    end
  end)
end)

describe("docs/embedding.md", function()
  it("has a first program that works", function()
    local name = stage.semaphore(1)
    local text = assert(process.contents "docs/embedding.md"):match "```c\n(#include.-)\n```\n"
    text = text:gsub("amqp://guest:guest@localhost", (URL:gsub("%%", "%%%%"))):gsub('"images"', ('"%s"'):format(name))
    local path = program.place() .. "/embedding.c"
    local file = assert(io.open(path, "w"))
    file:write(text, "\n")
    file:close()
    local status, output =
      program.run({ LD_LIBRARY_PATH = program.LIB }, (program.build(path, "amqplocks")))
    assert.same({ 0, "in slot 1\n" }, { status, output })
    assert.is_true(stage.free(name, 1))
  end)

  it("waits for a child and its lock at once, as it says", function()
    local text = assert(process.contents "docs/embedding.md"):match "\n  ```c\n(.-)\n  ```\n"
    local path = program.place() .. "/waiting.c"
    local file = assert(io.open(path, "w"))
    file:write("#include <amqplocks.h>\nvoid wait_for(al_session *, al_lock *, int);\n",
      "void wait_for(al_session *session, al_lock *lock, int child) {\n", text, "\n}\nint main(void) { return 0; }\n")
    file:close()
    program.build(path, "amqplocks")
  end)
end)
