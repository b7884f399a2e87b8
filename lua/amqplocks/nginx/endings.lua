-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What is to be done at the end of a request, whichever way it ends: its handler returned or failed, the client went
-- away, another phase took over. nginx itself says so, by a clean-up of the request; the work is done a moment later
-- by a coroutine of the worker's.
local core = require "amqplocks.core"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local semaphore = require "ngx.semaphore"

local C = ffi.C

ffi.cdef [[
  struct amqplocks_ending;
  typedef struct {
    struct amqplocks_ending *first;
    int (*post)(void *semaphore, int n);
    void *semaphore;
  } amqplocks_endings;
  typedef struct amqplocks_ending {
    struct amqplocks_ending *next;
    amqplocks_endings *all;
    double number;
  } amqplocks_ending;

  typedef struct amqplocks_cleanup {
    void (*handler)(void *data);
    void *data;
    struct amqplocks_cleanup *next;
  } amqplocks_cleanup;
  amqplocks_cleanup *ngx_http_cleanup_add(void *request, size_t size);
]]

local new_endings, new_ending = ffi.typeof "amqplocks_endings", ffi.typeof "amqplocks_ending"
local note_end = ffi.cast("void (*)(void *)", core.note_end)

local endings = {}
endings.__index = endings

function endings.new()
  local called = assert(semaphore.new())
  local self = setmetatable({ _called = called, _expected = {}, _last = 0, count = 0 }, endings)
  local post = ffi.cast("int (*)(void *, int)", C.ngx_http_lua_ffi_sema_post)
  self._all = new_endings(nil, post, ffi.cast("void *", called.sem))
  return self
end

--- Which request we are in: comparable, and worth nothing once it has ended.
endings.request = get_request

--- Has fn() called when the request we are in has ended. -> a function that makes nothing of it
function endings:expect(fn)
  local number = self._last + 1
  local ending = new_ending(nil, self._all, number)
  local cleanup = C.ngx_http_cleanup_add(get_request(), 0)
  if cleanup == nil then error("not enough memory", 0) end
  self._last = number
  self._expected[number] = { fn = fn, ending = ending } -- which nginx points to: it has to stay where it is
  self.count = self.count + 1
  cleanup.data = ending
  cleanup.handler = note_end
  return function()
    local expected = self._expected[number]
    if expected then expected.fn = nil end
  end
end

-- An error would be a defect, and of one request: the others are still to be looked after.
local function attempt(fn)
  local fine, problem = pcall(fn)
  if not fine then ngx.log(ngx.ERR, "amqplocks: ", problem) end
end

--- Waits for endings, not longer than so many seconds, and does what they are to be followed by.
function endings:wait(seconds)
  self._called:wait(seconds)
  local ending = self._all.first
  self._all.first = nil
  while ending ~= nil do
    local number = tonumber(ending.number)
    local expected = self._expected[number]
    ending = ending.next
    self._expected[number] = nil
    self.count = self.count - 1
    if expected.fn then attempt(expected.fn) end
  end
end

return endings
