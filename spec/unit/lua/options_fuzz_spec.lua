-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Options: valid ones are taken; invalid ones, of every type, nested, circular, inherited, computed on access, raise an
-- error that names the call and the option. Nothing else happens, and nothing crashes. annotations_spec sees which
-- options each function has, and of which types they are.
local amqplocks = require "amqplocks"
local objects = require "spec.unit.lua.objects_scene"

-- Thrown: by what waits, as then the options were taken; by tables that do not like to be read.
local TAKEN, OUCH = {}, {}

local function nothing() end

local function throw(what) return function() error(what, 0) end end

local circle = {}
circle[1], circle.timeout, circle[circle] = circle, circle, { circle }

-- What is right for no option.
local WRONG = { {}, { 5 }, circle, setmetatable({}, { __tostring = throw(OUCH) }), coroutine.create(nothing), 0 / 0,
  math.huge, -1.5, -2 ^ 63, setmetatable({}, { __call = nothing, __len = throw(OUCH), __eq = throw(OUCH),
    __lt = throw(OUCH), __concat = throw(OUCH) }) }

-- Right for no option but those that are any string.
local TEXTS = { "", "5", "1e3", "nil", "classic ", "%s%d%n", "a\nb", "a\0b", "\255\254", ("x"):rep(70000) }

local NAMES = { "Timeout", "__index", 1, 0.5, true, nothing, {}, setmetatable({}, { __tostring = throw(OUCH) }) }

-- A kind of option: what is right, and what is wrong beside WRONG.
local function kind(right, wrong, texts) return { right = right, wrong = { WRONG, wrong, texts or TEXTS } } end

local function whole(least, most)
  return kind({ least, most, math.floor((least + most) / 2), least + 0.0 },
    { least - 1, most + 1, least + 0.5, 2 ^ 31, 2 ^ 53, 2 ^ 63, 2 ^ 64, 1e300, tostring(least), true })
end

local function one_of(...) return kind({ ... }, { true, 0, 1, (...) .. " ", (...):upper() }) end

local BOOLEAN = kind({ true, false }, { 0, 1, nothing })
local SECONDS = kind({ 0, 1, 0.25, 1e-9, 5e-324, 1e9, 2 ^ 53, 1e300, -0.0 }, { -1, -1e-300, true, nothing })
local TIMEOUT = kind({ 1, 0.25, 1e-9, 5e-324, 1e9, 2 ^ 53, 1e300 }, { 0, -0.0, -1, true, nothing })
local CALLABLE = kind({ nothing, type }, { true, 1 })
local QUEUE_TYPE = one_of("classic", "quorum")
local ATTEMPTS, PROBE = whole(1, 1000), one_of("auto", "publish", "passive")

-- As docs/drivers.md has them.
local DRIVER = {
  connect = function() return nil, "nobody is there" end,
  condition = function() return { wait = throw(TAKEN), signal = nothing } end,
  spawn = function(fn) coroutine.wrap(fn)() end,
}

local ACQUIRE = { timeout = SECONDS, fair = BOOLEAN, priority = whole(-32768, 32767), poll = TIMEOUT,
  patient = BOOLEAN, on_wait = CALLABLE }

-- The name of a function, its options, and a call of it.
local CALLS = {
  { "connect", {
    name = kind({ "n", ("x"):rep(100) }, { ("x"):rep(101), true }, { "", "a\nb", "a\0b" }),
    heartbeat = whole(1, 65535), timeout = TIMEOUT, log = CALLABLE,
    driver = kind({ "native", DRIVER, setmetatable({}, { __index = DRIVER }) }, { "resty", true, nothing }),
    shared = kind({}, { true, false, 1 }), -- which is gone
    on_lost = kind({ false, nothing }, { true, 1 }),
    tls = kind({}, { {}, { verify = true }, true }) }, -- which is for amqps
    function(_, opts) return amqplocks.connect("amqp://127.0.0.1:1", opts) end }, -- where nobody listens
  { "mutex", { max_attempts = ATTEMPTS, probe = PROBE, persistent = BOOLEAN },
    function(all, opts) return all.Connection:mutex("a", opts) end },
  { "semaphore", { max_attempts = ATTEMPTS, probe = PROBE, strategy = one_of("ascending", "random", "last") },
    function(all, opts) return all.Connection:semaphore("a", opts) end },
  { "token_semaphore", { queue_type = QUEUE_TYPE },
    function(all, opts) return all.Connection:token_semaphore("a", opts) end },
  { "acquire", ACQUIRE, function(all, opts) return all.Semaphore:acquire(opts) end },
  { "write", ACQUIRE, function(all, opts) return all.RWLock:write(opts) end },
  { "resize", { queue_type = QUEUE_TYPE, timeout = TIMEOUT, wait = SECONDS, overshoot = whole(0, 65535),
    revoke = BOOLEAN, ascending = BOOLEAN }, function(all, opts) return all.Admin:resize(2, opts) end },
  { "resize", { queue_type = QUEUE_TYPE, timeout = TIMEOUT, wait = SECONDS },
    function(all, opts) return all.TokenSemaphore:resize(2, opts) end },
  { "revoke", { timeout = TIMEOUT, wait = SECONDS }, function(all, opts) return all.Mutex:revoke(opts) end },
}

-- In which the same may stand: each gives a table like that.
local FORMS = {
  function(opts) return opts end,
  function(opts) return setmetatable({}, { __index = opts }) end,
  function(opts) -- it is said when asked for, and nowhere else
    return setmetatable({}, { __metatable = false, __index = function(_, name) return opts[name] end,
      __pairs = function() return nothing end, __len = throw(OUCH), __newindex = throw(OUCH) })
  end,
}

-- The options are taken, if there are no words; otherwise an error has them.
local function try(all, call, opts, words)
  local name = call[1]
  local fine, result, message, code = pcall(call[3], all, opts)
  if not words then
    local is_said = fine and (result or message:sub(1, #code + 1) == code .. ":")
    assert.is_true(is_said and true or result == TAKEN or result == "waits", result)
  else
    assert.same({ false, "string" }, { fine, type(result) }, name .. ": " .. words)
    assert.is_true(result:find(name, 1, true) == 1 and #result < 400 and not result:find "%c", result)
    assert.is_truthy(result:find(words, 1, true), words .. " is not in: " .. result)
  end
end

for i, call in ipairs(CALLS) do
  it(("the options of %s are taken, or refused by name (%d)"):format(call[1], i), function()
    local all = objects()
    for name, about in pairs(call[2]) do
      for n, right in ipairs(about.right) do try(all, call, FORMS[n % 3 + 1] { [name] = right }) end
      for _, list in ipairs(about.wrong) do
        for n, wrong in ipairs(list) do try(all, call, FORMS[n % 3 + 1] { [name] = wrong }, name) end
      end
    end
    for _, name in ipairs(NAMES) do try(all, call, { [name] = 5 }, "unknown option") end
    for _, other in ipairs { 5, "x", true, nothing } do try(all, call, other, "options must be a table") end
    local _, problem = pcall(call[3], all, setmetatable({}, { __index = throw(OUCH) }))
    assert.equal(OUCH, problem)
  end)
end

local function inherits(from) return setmetatable({}, { __index = from }) end

it("options that a table inherits count, and so do slots of a list", function()
  local conn = objects.connect(function(operation, peer)
    peer:pass(0.5) -- it is told that time has passed, and then that all is over
    if not operation:done() then error(TAKEN, 0) end
  end)
  local admin = conn:admin("images", inherits(inherits{ timeout = 0.25 }))
  assert.matches("0.25 s", select(2, admin:destroy()), 1, true)
  assert.matches("0.125 s", select(2, admin:destroy(inherits{ timeout = 0.125 })), 1, true)
  admin = conn:admin "images"
  local fine, problem = pcall(admin.wait_released, admin, inherits{ 1, 2 })
  assert.same({ false, true }, { fine, problem == TAKEN }) -- waits: it asks for them
  assert.error_matches(function() admin:wait_released(inherits(function() return 1 end)) end,
    "wait_released: slots must be a list of slots")
end)

it("an error about a value that is wrong shows it on one line, and not all of what is long, or says that it cannot",
  function()
    for expected, value in pairs{ [ [["a\10b\0c"]] ] = "a\nb\0c", ['"' .. ("x"):rep(60) .. '…"'] = ("x"):rep(1000),
      ["a table"] = setmetatable({}, { __tostring = throw(OUCH) }) } do
      assert.error_matches(function() objects().Mutex:acquire { poll = value } end,
        "acquire: option poll must be a number of seconds, finite and not negative, not " .. expected, 1, true)
    end
  end)
