-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The stories (simulated runs) of spec/support/model/stories.lua, some seeds of each. The seed decides everything in a
-- story; `make prove-sim` plays new seeds.
--
--     AMQPLOCKS_STORY="death 17" make test SPEC=spec/sim/crowd_spec.lua       # one story again, with the whole trace
--     AMQPLOCKS_STORY="death" make test SPEC=spec/sim/crowd_spec.lua          # some of its seeds, and no other story
--     AMQPLOCKS_SOAK=1 make test SPEC=spec/sim/crowd_spec.lua                 # a hundred times as many
local process = require "spec.support.process"
local stories = require "spec.support.model.stories"

local unpack = table.unpack or unpack

local SHARE = os.getenv "AMQPLOCKS_SOAK" and 10 or 0.1  -- of each story's seeds
local ONE_NAME, ONE_SEED = (os.getenv "AMQPLOCKS_STORY" or ""):match("^(.-) ?(%d*)$")
local SHOWN = 60  -- lines of a story that ended badly

-- Told again, what was wrong comes with what went before.
local function fail(story, seed, err)
  local trace = stories.play(story, seed, true).world.trace
  error(("AMQPLOCKS_STORY=%q: %s\n%s"):format(story.name .. " " .. seed, err,
    table.concat(trace, "\n", math.max(1, #trace - SHOWN))), 0)
end

local function play_all(story)
  local grants, orphaned = 0, 0
  local is_rare = story.name:find "orphans"  -- it takes more seeds until somebody is robbed
  local seeds = math.ceil(story.seeds * SHARE * (is_rare and 2 or 1))
  for seed = 1, seeds do
    local crowd, err = stories.play(story, seed)
    if err then fail(story, seed, err) end
    grants, orphaned = grants + crowd.watch.grants, orphaned + crowd.watch.orphaned
  end
  assert.is_true(grants > 5 * seeds, "only " .. grants .. " locks were taken")
  if is_rare then assert.is_true(orphaned > 0, "nobody was robbed") end
end

local function show(story, seed)
  local crowd, err = stories.play(story, seed, true)
  print(table.concat(crowd.world.trace, "\n"))
  assert.is_nil(err)
end

describe("five processes that want", function ()
  for _, story in ipairs(stories.all) do
    local is_wanted = ONE_NAME == "" or ONE_NAME == story.name
    if is_wanted and ONE_SEED ~= "" then
      it(story.name .. " " .. ONE_SEED .. " ends well", function () show(story, tonumber(ONE_SEED)) end)
    elseif is_wanted then
      it(("%s %s never share it, never sleep beside a free one, and leave nothing"):format(story.what, story.text),
        function () play_all(story) end)
    end
  end
end)

if ONE_NAME ~= "" then return end

-- The trace of a story as another process tells it. `environment`: variables for it, { "NAME=value", … }.
local function told_elsewhere(lua, story, seed, environment)
  local words = { "env", "STORY=" .. story.name, "SEED=" .. seed }
  for _, word in ipairs(environment) do table.insert(words, word) end
  table.insert(words, lua)
  table.insert(words, "tools/prove/simulation.lua")
  return process.shell(unpack(words))
end

local function has(lua, module)
  return pcall(process.shell, lua, "-e", ("require %q"):format(module))
end

local function exists(path)
  local file = io.open(path)
  return file and file:close()
end

-- Seeds of long runs (docs/proving.md, "A million stories"), each of which showed something.
local MENDED = {
  ["mutex orphans"] = { 1000103 }, fenced = { 1001396, 1002703 }, ["mutex fenced requests"] = { 1001936 },
  ["rw callers races"] = { 1001511, 2001887 }, ["many callers"] = { 1001445, 1002401, 1002972, 2001077 },
  ["many limit"] = { 2000816 }, robbed = { 1003773 }, denied = { 2002039 }, ["rw bold"] = { 1000004, 1000286, 2001905 },
  ["mutex bold"] = { 2001223 }, ["tokens fenced destroy"] = { 2001656, 3000507 }, ["fast deleted"] = { 3000712 },
  loss = { 1000750 },
}

describe("seeds that ended badly once", function ()
  for name, seeds in pairs(MENDED) do
    it("end well now: " .. name, function ()
      for _, seed in ipairs(seeds) do
        local _, err = stories.play(stories.named(name), seed)
        if err then fail(stories.named(name), seed, err) end
      end
    end)
  end
end)

describe("stories that several processes share", function ()
  -- Returns the counts of all stories of a run, and its verdict.
  local function sum_of(jobs)
    local told = process.shell("env", "STORY=mutex", "STORIES=5", "FROM=7", "JOBS=" .. jobs, os.getenv "LUA" or "lua",
      "tools/prove/simulation.lua")
    return told:match "\nall +(%d+ +%d+ +%d+ +%d+)\n", told:match "([^\n]+)\n*$"
  end

  it("are the same as those of one process", function ()
    local sum, verdict = sum_of(1)
    assert.matches("^5 ", sum)
    assert.equal("5 stories ended well", verdict)
    for jobs = 2, 3 do assert.same({ sum, verdict }, { sum_of(jobs) }) end
  end)
end)

-- Whatever could decide besides the seed (the order of a table, an address, a clock) is different then.
describe("a story that is played again is the same to the last letter", function ()
  local SEEDS, BUSY = { 3, 1700000000123 }, { "callers all", "requests all", "mutex all", "tokens all", "rw requests",
    "fast all" }

  local function trace(story, seed)
    return table.concat(stories.play(story, seed, true).world.trace, "\n")
  end

  local function each(fn)
    for i, name in ipairs(BUSY) do fn(stories.named(name), SEEDS[i % #SEEDS + 1]) end
  end

  local function assert_same(told, again)
    assert.is_true(told == again:sub(1, #told), "it was told in two ways")
  end

  it("in the same process", function ()
    each(function (story, seed)
      local told = trace(story, seed)
      assert.is_true(#told > 10000)
      assert_same(told, trace(story, seed))
      assert.is_false(told == trace(story, seed + 1))
    end)
  end)

  it("in another process", function ()
    each(function (story, seed)
      assert_same(trace(story, seed), told_elsewhere(os.getenv "LUA" or "lua", story, seed, {}))
    end)
  end)

  it("under another Lua", function ()
    if not (exists "build/luajit/amqplocks/core.so" and has("luajit", "compat53.string")) then
      return pending "no LuaJIT, or not what it takes"
    end
    local found = { "LUA_PATH=./?.lua;;", "LUA_CPATH=build/luajit/?.so;;" }
    each(function (story, seed)
      assert_same(trace(story, seed), told_elsewhere("luajit", story, seed, found))
    end)
  end)
end)
