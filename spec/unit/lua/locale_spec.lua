-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The locale of a program changes nothing of what other programs, brokers and databases read, in either rock; and both
-- rocks work under strict globals.
local locale = require "spec.support.locale"
local process = require "spec.support.process"

local HERE = process.shell("pwd"):match "[^\n]+"

-- Those that were built for this run; `make matrix` has the others.
local LUAS = {
  [os.getenv "LUA" or "lua5.4"] = {},
  luajit = {
    "LUA_PATH=" .. HERE .. "/lua/?.lua;" .. HERE .. "/lua/?/init.lua;" .. HERE .. "/db-locks/?.lua;"
      .. HERE .. "/db-locks/?/init.lua;;",
    "LUA_CPATH=" .. HERE .. "/build/luajit/?.so;;",
  },
}

-- All modules, but those that need nginx.
local MODULES = {}
for path in process.shell("find", "lua", "db-locks", "-name", "*.lua"):gmatch "/(%S+)%.lua" do
  if not path:find "/nginx/" then table.insert(MODULES, (path:gsub("/init$", ""):gsub("/", "."))) end
end

local function told(lua, name)
  local words = { "env", "LOCPATH=" .. locale.environment().LOCPATH }
  for _, setting in ipairs(LUAS[lua]) do table.insert(words, setting) end
  for _, word in ipairs { lua, "spec/support/programs/abroad.lua", name } do table.insert(words, word) end
  for _, module in ipairs(MODULES) do table.insert(words, module) end
  return process.shell((table.unpack or unpack)(words))
end

for lua in pairs(LUAS) do
  describe(("under %s the locale"):format(lua:match "[^/]+$"), function()
    local here

    setup(function() here = told(lua, "C") end)

    for _, name in ipairs(locale.NAMES) do
      it(("%s changes no number, no order and no name"):format(name), function()
        assert.matches('le="0.0025"', here, 1, true)
        assert.equal(here, told(lua, name))
      end)
    end
  end)
end

it("the rockspecs list their files in the same order under every locale", function()
  for _, path in ipairs { "amqp-locks-scm-1.rockspec", "db-locks/db-locks-scm-1.rockspec" } do
    local now = process.shell("env", "LC_ALL=de_DE.UTF-8", "LOCPATH=" .. locale.environment().LOCPATH,
      "spec/support/rockspec", path)
    assert.equal(process.contents(path), now)
  end
end)
