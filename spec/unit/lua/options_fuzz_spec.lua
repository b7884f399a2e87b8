-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Random options for every function that takes options: valid and invalid ones, of every type, nested, circular,
-- inherited, computed on access. Valid options are accepted. Invalid ones raise an error that names the call and the
-- option. Nothing else happens, and nothing crashes.
--
-- The seed is the number of the run: AMQPLOCKS_OPTIONS=17 repeats one run alone, AMQPLOCKS_OPTIONS=100-200 some of
-- them. AMQPLOCKS_SOAK=1 runs many more.
local Random = require "spec.support.model.random"
local amqplocks = require "amqplocks"
local objects = require "spec.unit.lua.objects_scene"

local RUNS = os.getenv "AMQPLOCKS_SOAK" and 100000 or 2000
local RUNS_EACH = 20 -- on one connection

-- Thrown: by what waits, as then the options were taken; by tables that do not like to be read.
local TAKEN, OUCH = {}, {}

local function nothing() end

local function throw(what) return function() error(what, 0) end end

local function in_a_circle()
  local circle = {}
  circle[1], circle.timeout, circle[circle] = circle, circle, { circle }
  return circle
end

local function with(metatable) return function() return setmetatable({}, metatable) end end

-- What is right for no option.
local WRONG = {
  function() return {} end, function() return { 5 } end, in_a_circle, with{ __tostring = throw(OUCH) },
  with{ __call = nothing, __len = throw(OUCH), __eq = throw(OUCH), __lt = throw(OUCH), __concat = throw(OUCH) },
  function() return coroutine.create(nothing) end, function() return 0 / 0 end, function() return math.huge end,
  function() return -1.5 end, function() return -2 ^ 63 end,
}

-- Right for no option but those that are any string.
local TEXTS = { "", "5", "1e3", "nil", "classic ", "%s%d%n", "a\nb", "a\0b", "\255\254", ("x"):rep(70000) }

local NAMES = { "Timeout", "__index", 1, 0.5, true, nothing, {}, setmetatable({}, { __tostring = throw(OUCH) }) }

-- A kind of option: what is right, and what is wrong beside all that.
local function kind(right, wrong, texts) return { right = right, wrong = wrong, texts = texts or TEXTS } end

local function whole(least, most)
  return kind({ least, most, math.floor((least + most) / 2), least + 0.0 },
    { least - 1, most + 1, least + 0.5, 2 ^ 31, 2 ^ 53, 2 ^ 63, 2 ^ 64, 1e300, tostring(least), true })
end

local function one_of(...) return kind({ ... }, { true, 0, 1, (...) .. " ", (...):upper() }) end

local BOOLEAN = kind({ true, false }, { 0, 1, nothing })
local SECONDS = kind({ 0, 1, 0.25, 1e-9, 5e-324, 1e9, 2 ^ 53, 1e300, -0.0 }, { -1, -1e-300, true, nothing })
local TIMEOUT = kind({ 1, 0.25, 1e-9, 5e-324, 1e9, 2 ^ 53, 1e300 }, { 0, -0.0, -1, true, nothing })
local CALLABLE = kind({ nothing, type }, { true, 1 })
local QUEUE_TYPE, PROBE = one_of("classic", "quorum"), one_of("auto", "publish", "passive")

-- As docs/drivers.md has them.
local DRIVER = {
  connect = function() return nil, "nobody is there" end,
  condition = function() return { wait = throw(TAKEN), signal = nothing } end,
  spawn = function(fn) coroutine.wrap(fn)() end,
}

local ACQUIRE = { timeout = SECONDS, fair = BOOLEAN, priority = whole(-32768, 32767), poll = TIMEOUT,
  patient = BOOLEAN, on_wait = CALLABLE }
local TOKEN_ADMIN = { queue_type = QUEUE_TYPE, timeout = TIMEOUT, wait = SECONDS }
local ADMIN = { queue_type = QUEUE_TYPE, timeout = TIMEOUT, wait = SECONDS, overshoot = whole(0, 65535),
  revoke = BOOLEAN, ascending = BOOLEAN }
local REVOKE = { timeout = TIMEOUT, wait = SECONDS }
local RESOURCE = { max_attempts = whole(1, 1000), probe = PROBE }
local MUTEX = { max_attempts = whole(1, 1000), probe = PROBE, persistent = BOOLEAN }
local SEMAPHORE = { max_attempts = whole(1, 1000), probe = PROBE, strategy = one_of("ascending", "random", "last") }
local CONNECT = {
  name = kind({ "n", ("x"):rep(100) }, { ("x"):rep(101), true }, { "", "a\nb", "a\0b" }),
  heartbeat = whole(1, 65535), timeout = TIMEOUT, log = CALLABLE,
  driver = kind({ "native", DRIVER, setmetatable({}, { __index = DRIVER }) }, { "resty", true, nothing }),
  shared = kind({}, { true, false, 1 }), -- which is gone
  on_lost = kind({ false, nothing }, { true, 1 }),
  tls = kind({}, { {}, { verify = true }, true }), -- which is for amqps
}
local CALLS = {}

-- `where`: what errors begin with. `is_lax`: false is as good as no options.
local function add(where, known, is_lax, call)
  local names = {}
  for name in pairs(known) do table.insert(names, name) end
  table.sort(names)
  table.insert(CALLS, { where = where, known = known, names = names, is_lax = is_lax, call = call })
end

-- Nobody listens there.
add("connect", CONNECT, true, function(_, opts) return amqplocks.connect("amqp://127.0.0.1:1", opts) end)

for _, made in ipairs{ { "mutex", MUTEX }, { "semaphore", SEMAPHORE }, { "rwlock", RESOURCE }, { "admin", ADMIN },
  { "token_semaphore", { queue_type = QUEUE_TYPE } }, { "fast_mutex", {} } } do
  add(made[1], made[2], true, function(conn, opts) return conn[made[1]](conn, "images", opts) end)
end

-- A method of an object that conn[make](conn, "images", made) makes, with an argument before the options, or without.
local function on(make, made, method, known, argument)
  add(method, known, false, function(conn, opts)
    local object = conn[make](conn, "images", made)
    if argument then return object[method](object, argument, opts) end
    return object[method](object, opts)
  end)
end

-- `with` has its options first.
local function scoped(make, method)
  add(method, ACQUIRE, false, function(conn, opts)
    local object = conn[make](conn, "images")
    return object[method](object, opts, nothing)
  end)
end

for _, make in ipairs{ "mutex", "fast_mutex", "semaphore", "token_semaphore" } do
  on(make, nil, "acquire", ACQUIRE)
  scoped(make, "with")
end
for _, side in ipairs{ "read", "write" } do
  on("rwlock", nil, side, ACQUIRE)
  scoped("rwlock", "with_" .. side)
end
for _, administered in ipairs{ { "admin", ADMIN }, { "token_semaphore", TOKEN_ADMIN } } do
  local make, known = administered[1], administered[2]
  for _, action in ipairs{ "create", "add", "remove", "resize" } do on(make, nil, action, known, 2) end
  for _, action in ipairs{ "destroy", "repair", "slots" } do on(make, nil, action, known) end
end
on("admin", nil, "status", ADMIN)
on("admin", nil, "revoke", ADMIN, 3)
on("admin", nil, "wait_released", ADMIN, { 1, 3 })
on("mutex", nil, "revoke", REVOKE)
on("rwlock", nil, "revoke_readers", REVOKE)
on("rwlock", nil, "revoke_writer", REVOKE)
for _, action in ipairs{ "create", "destroy", "revoke" } do on("mutex", { persistent = true }, action, ADMIN) end

local function wrong_value(about, random)
  local draw = random:below(3)
  if draw == 1 then return random:pick(about.wrong) end
  if draw == 2 then return random:pick(about.texts) end
  return random:pick(WRONG)()
end

-- Gives { name = value }, and words of which an error must have one, if there must be an error.
local function drawn(call, random)
  local opts, words = {}, {}
  local is_right = random:chance(0.4)
  for _, name in ipairs(call.names) do
    local about = call.known[name]
    if random:chance(0.4) then
      if #about.right > 0 and (is_right or random:chance(0.6)) then
        opts[name] = random:pick(about.right)
      elseif not is_right then
        opts[name] = wrong_value(about, random)
        table.insert(words, name)
      end
    end
  end
  return opts, words
end

-- In which the same may stand: each gives a table like that.
local FORMS = {
  function(opts) return opts end,
  function(opts, random) -- some of it is inherited
    local heir = setmetatable({}, { __index = opts })
    for name, value in pairs(opts) do
      if random:chance(0.5) then heir[name] = value end
    end
    return heir
  end,
  function(opts) -- all of it is said when asked for, and nowhere else
    return setmetatable({}, { __metatable = false, __index = function(_, name) return opts[name] end,
      __pairs = function() return nothing end, __len = throw(OUCH), __newindex = throw(OUCH) })
  end,
}

-- Options for a call, and the words, nil if there must be no error.
local function options_for(call, random)
  local draw = random:float()
  if draw < 0.03 then return nil end
  if draw < 0.08 then
    local some = wrong_value(BOOLEAN, random)
    if type(some) == "function" then return nil end -- what `with` is to call
    if type(some) ~= "table" then return some, { "options must be a table" } end
  elseif draw < 0.1 then
    return false, not call.is_lax and { "options must be a table" } or nil
  elseif draw < 0.15 then
    return setmetatable({}, { __index = throw(OUCH) }), OUCH
  end
  local opts, words = drawn(call, random)
  opts = random:pick(FORMS)(opts, random)
  if random:chance(0.2) then
    rawset(opts, random:chance(0.5) and random:pick(NAMES) or random:pick(TEXTS), 5)
    table.insert(words, "unknown option")
  end
  return opts, #words > 0 and words or nil
end

local function has_one(message, words)
  for _, word in ipairs(words) do
    if message:find(word, 1, true) then return true end
  end
end

local function judge(call, words, fine, result, message, code)
  if not fine and (result == TAKEN or result == OUCH) then
    return result ~= OUCH and words and "was taken" or result == OUCH and words ~= OUCH and "was read in vain"
  elseif fine then
    local is_said = result or type(code) == "string" and message:sub(1, #code + 1) == code .. ":"
    return words and "was taken" or not is_said and "was answered with nothing" or nil
  end
  local is_clear = type(result) == "string" and #result < 400 and not result:find "%c"
    and result:find(call.where, 1, true) == 1 and words and words ~= OUCH and has_one(result, words)
  return not is_clear and "is answered with " .. tostring(result):sub(1, 400)
end

-- What waits is told that time has passed, and then that all is over.
local function connect()
  return (objects.connect(function(operation, peer)
    peer:pass(0.5)
    if not operation:done() then error(TAKEN, 0) end
  end))
end

local function runs()
  local only = os.getenv "AMQPLOCKS_OPTIONS"
  if not only then return 1, RUNS end
  local first, last = only:match "^(%d+)%-?(%d*)$"
  return tonumber(first), tonumber(last) or tonumber(first)
end

it("options by chance are taken, or refused by name", function()
  local first, last = runs()
  local conn
  for run = first, last do
    local random = Random.new(run)
    local call = random:pick(CALLS)
    local opts, words = options_for(call, random)
    if (run - first) % RUNS_EACH == 0 then conn = connect() end
    local trouble = judge(call, words, pcall(call.call, conn, opts))
    if trouble then
      local wrong = words and words ~= OUCH and "wrong: " .. table.concat(words, ", ") or "nothing is wrong"
      error(("run %d: %s (%s) %s"):format(run, call.where, wrong, trouble), 0)
    end
  end
end)

local function inherits(from) return setmetatable({}, { __index = from }) end

it("options that a table inherits count, and so do slots of a list", function()
  local admin = connect():admin("images", inherits(inherits{ timeout = 0.25 }))
  assert.matches("0.25 s", select(2, admin:destroy()), 1, true)
  assert.matches("0.125 s", select(2, admin:destroy(inherits{ timeout = 0.125 })), 1, true)
  admin = connect():admin "images"
  local fine, problem = pcall(admin.wait_released, admin, inherits{ 1, 2 })
  assert.same({ false, true }, { fine, problem == TAKEN }) -- waits: it asks for them
  assert.error_matches(function() admin:wait_released(inherits(function() return 1 end)) end,
    "wait_released: slots must be a list of slots")
end)

it("an error about a value that is wrong shows it on one line, and not all of what is long, or says that it cannot",
  function()
    for expected, value in pairs{ [ [["a\10b\0c"]] ] = "a\nb\0c", ['"' .. ("x"):rep(60) .. '…"'] = ("x"):rep(1000),
      ["a table"] = setmetatable({}, { __tostring = throw(OUCH) }) } do
      assert.error_matches(function() connect():mutex("db"):acquire{ poll = value } end,
        "acquire: option poll must be a number of seconds, finite and not negative, not " .. expected, 1, true)
    end
  end)
