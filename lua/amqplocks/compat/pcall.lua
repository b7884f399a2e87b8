-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A pcall for functions that may yield, in a coroutine of an event loop.
--
-- In Lua 5.1 a coroutine cannot yield across pcall; in LuaJIT and later Luas it can. In Lua 5.1 coxpcall is used, if it
-- is installed. It runs the function in a further coroutine, and passes on its yields. So `running` is here as well: it
-- returns the coroutine that a loop has to resume. Without coxpcall everything works in Lua 5.1, except waiting that
-- yields.
local core = require "amqplocks.core"

local protected = { pcall = pcall, running = coroutine.running }

local outer = {} -- of coxpcall: a coroutine -> the one in which it was begun

-- The pcall of coxpcall adds a traceback to an error that is text; this handler does not.
local function unchanged(_, problem) return problem end

-- coxpcall keeps the outer coroutine of each inner one in a table with strong references, and so keeps both for ever.
-- An abandoned coroutine would never be collected, nor the lock that it waits for. This makes the table weak.
local function let_go(running)
  local i = 0
  repeat
    i = i + 1
    local name, owners = debug.getupvalue(running, i)
    if name == "coromap" then outer = setmetatable(owners, { __mode = "kv" }) end
  until not name
end

local function use(coxpcall)
  let_go(coxpcall.running)
  protected.running = coxpcall.running
  function protected.pcall(fn, ...)
    if not coroutine.running() then return pcall(fn, ...) end
    return coxpcall.xpcall(fn, unchanged, ...)
  end
end

-- Decided by the version, not by a test: in nginx no coroutine may be resumed while a module is loaded.
if _VERSION == "Lua 5.1" and not package.loaded.jit then
  local found, coxpcall = pcall(require, "coxpcall")
  if found then use(coxpcall) end
end

-- Lua 5.1 does not tell whether a coroutine can yield. It cannot while a C function calls Lua. Level 0 is
-- debug.getinfo, or the coroutine.resume that runs the coroutine inside.
local function is_inside_c(thread)
  for level = 1, math.huge do
    local frame = debug.getinfo(thread, level, "S")
    if not frame or frame.what == "C" then return frame ~= nil end
  end
end

--- Returns whether the caller can yield: false in the main program, inside a C function that calls Lua, such as
-- table.sort, and while the coroutine is being closed. In Lua 5.1 a metamethod or an iterator is not noticed.
protected.can_yield = core.can_yield or function()
  local thread = coroutine.running()
  if not thread then return false end
  repeat
    if is_inside_c(thread) then return false end
    thread = outer[thread]
  until not thread
  return true
end

--- Returns whether the caller is inside a call that `thread` began. `thread` is coroutine.running() at that time, or
-- true if that returned nothing: in Lua 5.1's main program, which never yields. False if that coroutine waits to be
-- resumed, or has ended.
function protected.is_inside(thread)
  if type(thread) ~= "thread" then return thread ~= nil end
  local status = coroutine.status(thread)
  return status == "running" or status == "normal"
end

--- Returns whether a call that `thread` began, as above, may still return: the caller is inside it, or `thread` waits
-- to be resumed.
function protected.may_return(thread)
  if type(thread) ~= "thread" then return thread ~= nil end
  local status = coroutine.status(thread)
  return status ~= "dead" and status ~= "zombie" -- "zombie": an ended light thread of nginx
end

return protected
