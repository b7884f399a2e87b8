-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A pcall for functions that may yield, in a coroutine of an event loop.
--
-- In Lua 5.1 a coroutine cannot yield across pcall; in LuaJIT and later Luas it can. In Lua 5.1 coxpcall is used, if it
-- is installed. It runs the function in a further coroutine, and passes on its yields. So `running` is here as well: it
-- returns the coroutine that a loop has to resume. Without coxpcall everything works in Lua 5.1, except waiting that
-- yields.
local protected = { pcall = pcall, running = coroutine.running }

-- The pcall of coxpcall adds a traceback to an error that is text; this handler does not.
local function unchanged(_, problem) return problem end

-- coxpcall keeps the outer coroutine of each inner one in a table with strong references, and so keeps both for ever.
-- An abandoned coroutine would never be collected, nor the lock that it waits for. This makes the table weak.
local function let_go(running)
  local i = 0
  repeat
    i = i + 1
    local name, owners = debug.getupvalue(running, i)
    if name == "coromap" then setmetatable(owners, { __mode = "kv" }) end
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
