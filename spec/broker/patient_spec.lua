-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A patient acquire waits until the broker is there.
local broker = require "spec.support.broker"
local kinds = require "spec.support.kinds"
local program = require "spec.support.program"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"

local operated_it = broker.operated_it(it, pending)

local LONG = 60

stage.tidy(program.clear)
teardown(program.remove)

describe("a patient acquire, where the broker cannot be reached, of a", function()
  for kind, makes in pairs(kinds.all) do
    it(kind .. " has it when the broker is there again", function()
      local name, between = makes.name(), proxy.start()
      local lockable = makes.over(stage.connect(between.url), name)
      between:refuse(true)
      between:cut_all()
      local reasons = {}
      local lock = stage.take(lockable, { patient = true, timeout = LONG, on_wait = function(_, reason)
        table.insert(reasons, reason)
        between:refuse(false)
      end })
      assert.matches("^unreachable: ", reasons[1])
      assert.is_true(lock:verify())
      stage.fails("busy", kinds.rival(kind, name):try_acquire())
      assert.is_true(lock:release())
    end)
  end
end)

describe("an acquire, where the broker cannot be reached,", function()
  local name, between, mutex, lines

  before_each(function()
    name, between, lines = stage.mutex(), proxy.start(), {}
    mutex = stage.connect(between.url, { log = function(level, text) table.insert(lines, level .. " " .. text) end })
      :mutex(name)
    between:refuse(true)
    between:cut_all()
  end)

  it("fails at once, unless it is patient, and has time for it", function()
    stage.fails("unreachable", mutex:acquire{ timeout = LONG })
    stage.fails("unreachable", mutex:acquire{ timeout = LONG, patient = false })
    stage.fails("unreachable", mutex:acquire{ timeout = 0, patient = true })
  end)

  it("fails after its timeout, and tells why there was no lock", function()
    local message = stage.times_out(function(seconds) return mutex:acquire{ timeout = seconds, patient = true } end,
      function(message) return message:find(" within [%d.]+ s: unreachable: ") end)
    assert.matches('"' .. name .. '" was not acquired within ', message, 1, true)
  end)

  it("goes on for ever without a timeout, and logs each reason once, however often it has tried", function()
    local rounds, told = 0, 0
    local lock = stage.take(mutex, { patient = true, on_wait = function()
      rounds = rounds + 1
      if rounds == 3 then between:refuse(false) end
    end })
    assert.is_true(lock:verify() and rounds >= 3)
    assert.is_true(lock:release())
    for _, line in ipairs(lines) do
      if line:find("is not acquired yet: unreachable: ", 1, true) then
        told = told + 1
        assert.matches('^warning "' .. name:gsub("%p", "%%%0"), line)
      end
    end
    assert.equal(1, told, table.concat(lines, "\n"))
  end)
end)

describe("a patient acquire", function()
  it("that stands in line goes on when its connection is lost", function()
    local name, between = stage.mutex(), proxy.start()
    local held = stage.take(stage.connect():mutex(name))
    local conn = stage.connect(between.url)
    local before, is_cut
    local lock = stage.take(conn:mutex(name), { patient = true, timeout = LONG, on_wait = function(_, reason)
      if not is_cut then
        assert.equal("it is held", reason)
        is_cut, before = true, between:count()
        between:cut_all()
      elseif between:count() > before and held then
        assert.is_true(held:release())
        held = nil
      end
    end })
    assert.is_true(is_cut and not held and lock:verify())
    assert.is_true(lock:release())
  end)

  operated_it("of a write lock waits for the end of an alarm", function()
    local name = kinds.all.write.name()
    local conn = stage.connect()
    local lockable = kinds.all.write.over(conn, name)
    stage.alarm("memory", conn)
    stage.fails("blocked", lockable:acquire{ timeout = LONG })
    local reasons = {}
    local lock = stage.take(lockable, { patient = true, timeout = LONG, on_wait = function(_, reason)
      table.insert(reasons, reason)
      broker.suite:alarm(false, "memory")
    end })
    assert.matches("^blocked: ", reasons[1])
    assert.is_true(lock:release())
  end)
end)

describe("in C, a patient acquire", function()
  local interface

  setup(function() interface = program.build("spec/support/programs/interface.c", "amqplocks") end)

  local function start(url, ...)
    return program.start({ AMQP_URL = url, LD_LIBRARY_PATH = program.LIB }, interface, ...)
  end

  it("begins before there is a broker, and has the lock when there is one", function()
    local name, between = stage.mutex(), proxy.shut()
    local one = start(between.url, "patient", name)
    one:await("waits: unreachable: ")
    assert.equal(0, between:count())
    between:open()
    local status, output = one:wait(LONG)
    assert.equal(0, status, output)
    assert.matches("\nheld\nreleased\n$", output)
  end)

  it("ends at once where waiting does not help", function()
    local url, name = os.getenv "AMQP_URL", stage.mutex()
    for code, address in pairs{
      auth = url:gsub("//.-@", "//guest:wrong@"),
      vhost = url:gsub("(@[^/]+).*", "%1/none"),
      tls = url:gsub("^amqp:", "amqps:"),
    } do
      local status, output = start(address, "patient", name):wait(LONG)
      assert.same({ 1, true }, { status, output:find("failed: " .. code .. ": ", 1, true) ~= nil }, output)
    end
  end)

  it("is given up by who does not want it any more", function()
    local between = proxy.shut()
    local status, output = start(between.url, "give up", stage.mutex()):wait(LONG)
    assert.same({ 0, "given up\n" }, { status, output })
  end)
end)
