-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The pcall for what may yield, in the coroutine of an event loop.
--
-- Lua 5.1's own cannot be yielded across; LuaJIT's and those of later Luas can. There coxpcall stands in, if it is
-- installed: what it calls runs in a further coroutine, whose yields it hands on. So `running` is here as well: the
-- coroutine that a loop has to resume. Without coxpcall everything works on Lua 5.1 but waiting that yields.
local protected = { pcall = pcall, running = coroutine.running }

-- coxpcall's own pcall adds a traceback to an error that is text.
local function unchanged(_, problem) return problem end

-- coxpcall remembers which coroutine is whose in a table that holds on to the outer one, and so to both, for good: no
-- coroutine thrown away while it waits would ever be collected, nor what it was about to lock.
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

-- Told by its version, not tried: in nginx no coroutine may be resumed while a module is loaded.
if _VERSION == "Lua 5.1" and not package.loaded.jit then
  local found, coxpcall = pcall(require, "coxpcall")
  if found then use(coxpcall) end
end

--- Whether the caller is inside a call that `thread` began: coroutine.running() as it was then, or true where that gave
-- nothing, in Lua 5.1's main program, which never yields. It is not when that coroutine waits to be resumed, or has
-- ended.
function protected.is_inside(thread)
  if type(thread) ~= "thread" then return thread ~= nil end
  local status = coroutine.status(thread)
  return status == "running" or status == "normal"
end

--- Whether a call that `thread` began, as above, may still return: it is inside of it, or waits to be resumed.
function protected.may_return(thread)
  if type(thread) ~= "thread" then return thread ~= nil end
  local status = coroutine.status(thread)
  return status ~= "dead" and status ~= "zombie" -- as nginx has it of light threads
end

return protected
