-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What the README shows is run, as it stands there, by a Lua of its own.
local amqplocks = require "amqplocks"

local load_text = loadstring or load

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function lua_blocks(path)
  local blocks = {}
  for block in read(path):gmatch "```lua\n(.-)```" do blocks[#blocks + 1] = block end
  return blocks
end

-- Runs a program in another process; its output, and whether it ended well.
local function run(program)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(program)
  file:close()
  local pipe = assert(io.popen(("%s %s 2>&1"):format(os.getenv "LUA" or "lua5.4", path)))
  local output = pipe:read "a"
  local fine = pipe:close()
  os.remove(path)
  return output, fine
end

describe("the README", function()
  local blocks = lua_blocks "README.md"
  local has_close = load_text "local x <close> = nil" ~= nil
  local url = os.getenv "AMQP_URL"

  after_each(function()
    local conn = assert(amqplocks.connect())
    conn:admin("images"):destroy()
    conn:close()
  end)

  it("begins with a program that works", function()
    local program, replaced = blocks[1]:gsub("amqp://guest:guest@localhost", url)
    assert.equal(1, replaced)
    local output, fine = run(program)
    assert.is_true(fine, output)
    assert.equal("resizing, in slot 1\n", output)
  end)

  it("shows acquire, release and scopes that work", function()
    local shown = has_close and blocks[2] or blocks[2]:gsub("do\n  local lock <close>.-\nend\n", "")
    local before = ([[
      local amqplocks = require "amqplocks"
      local conn = assert(amqplocks.connect())
      assert(conn:admin("images"):resize(1))
      local images = conn:semaphore("images")
    ]])
    local after = "\nlocal last = assert(images:try_acquire()) print(last.slot) conn:close()"
    local output, fine = run(before .. shown .. after)
    assert.is_true(fine, output)
    assert.equal("1\n", output)
  end)

  it("points at an example of waiting that works", function()
    local conn = assert(amqplocks.connect())
    assert(conn:admin("backups"):resize(1))
    local lock = assert(conn:semaphore("backups"):try_acquire())
    local pipe = assert(io.popen(("%s examples/waiting.lua 0 2>&1"):format(os.getenv "LUA" or "lua5.4")))
    assert.equal("waiting for 0 s: 1 of 1 held", pipe:read "l")
    assert.is_true(lock:release())
    local output = pipe:read "a"
    assert.is_true(pipe:close(), output)
    assert.matches("working\ndone\n$", output)
    assert.is_true(conn:admin("backups"):destroy())
    conn:close()
  end)
end)
