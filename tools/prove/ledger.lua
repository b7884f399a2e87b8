-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The ledger of one name, and its judge. Processes append lines to one file, each in one write with O_APPEND
-- (spec/support/programs/ledger.c), so the place of a line is the order of events, without any clock:
--
--     ask LANE OP                        before an acquire
--     got LANE OP NUMBER KIND SLOT       after it, with the fencing token; "none": a lock of this kind has none
--     none LANE OP CODE                  after one that failed
--     held LANE OP                       the broker said, to verify(), that this lock is held. The process asked, and
--                                        wrote, while it had the file to itself (flock): the order of these lines is
--                                        the order of the moments at which the locks were certainly held
--     gone LANE OP CODE                  the same, with another answer
--     parted runner 0                    nodes of a cluster are not connected from here on
--     whole runner 0                     they are again, and holders have had the time to read the news
--     minute runner 0                    the end of a time in which each lane must have got a lock
--
-- A violation is one of these:
--   - a number that was got twice;
--   - a number that is not larger than all numbers that were got before its acquire began;
--   - a lock that was certainly held after a lock with a larger number was: locks that exclude each other only. Slots
--     are held beside each other, and readers;
--     Locks without a number are numbered in the order in which they were certainly held for the first time. Their
--     holders may be wrong between "parted" and "whole";
--   - with `most`: more locks than that which were certainly held beside each other;
--   - with `lanes`, at the end of a minute: a lane, of the numbers 1 to `lanes`, that got no lock in it;
--   - with `at_once`, which is for brokers that may give a lock to two in a partition, instead of that: a lock that was
--     certainly held for the first time after a lock with a larger number was.
--
--     local found = ledger.check(text)                  -- or check(text, { at_once = true })
--     found.violations                                  -- a list of texts
--     found.got, found.held, found.codes                -- how many; failed acquires by code
--     found.beside                                      -- how many were certainly held beside each other, at most
local ledger = {}

local judge = {}
judge.__index = judge

function judge:wrong(...) table.insert(self.violations, (...):format(select(2, ...))) end

function judge:ask(op) op.before = self.largest end

function judge:got(op, number, kind, slot)
  self.progress[op.name:match "^[^./]+"] = true
  op.number, op.kind, op.slot = tonumber(number), kind, slot
  self.numbers.got = self.numbers.got + 1
  if not op.number then return end
  local other = self.owners[op.number]
  if other then self:wrong("%s has the number %s, which %s had", op.name, number, other.name) end
  if op.number <= op.before then
    self:wrong("%s has the number %s; %.0f was known when it asked", op.name, number, op.before)
  end
  self.owners[op.number] = op
  self.largest = math.max(self.largest, op.number)
end

-- The slots, or sides of a readers–writer lock, that exclude this lock.
local function rivals(op)
  if op.kind == "read" then return { "write" } end
  if op.kind == "write" then return { "write", "read" } end
  return { op.slot }
end

function judge:held(op)
  self.numbers.held = self.numbers.held + 1
  op.first, op.last = op.first or self.numbers.held, self.numbers.held
  local place = (op.kind == "read" or op.kind == "write") and op.kind or op.slot
  local is_new = not op.is_held
  op.is_held = true
  op.is_numbered_here = op.is_numbered_here or not op.number
  op.number = op.number or self.numbers.held
  for _, rival in ipairs(rivals(op)) do
    local last = self.holders[rival]
    local may_be = self.at_once or self.are_parted and op.is_numbered_here
    if last and last.number > op.number and (is_new or not may_be) then
      self:wrong("%s held it with the number %.0f, after %s did with %.0f", op.name, op.number, last.name, last.number)
    end
  end
  if not self.holders[place] or self.holders[place].number < op.number then self.holders[place] = op end
end

function judge:parted() self.are_parted = true end

function judge:whole() self.are_parted = false end

function judge:minute()
  for lane = 1, self.lanes or 0 do
    if not self.progress[tostring(lane)] then self:wrong("lane %d got no lock in a minute", lane) end
  end
  self.progress = {}
end

-- A lock was held from the first line that says so to the last one.
function judge:beside(ops)
  local changes, now, most = {}, 0, 0
  for _, op in pairs(ops) do
    if op.first then
      changes[op.first] = (changes[op.first] or 0) + 1
      changes[op.last + 1] = (changes[op.last + 1] or 0) - 1
    end
  end
  for place = 1, self.numbers.held do
    now = now + (changes[place] or 0)
    most = math.max(most, now)
  end
  if self.most and most > self.most then self:wrong("%d locks were held beside each other", most) end
  return most
end

function judge:none(_, code) self.codes[code] = (self.codes[code] or 0) + 1 end

function judge:gone(_, code) self:none(nil, "gone: " .. code) end

--- Judges a ledger. A last line without its end is that of a process that was killed, and is ignored.
function ledger.check(text, options)
  local self = setmetatable({ violations = {}, numbers = { got = 0, held = 0 }, codes = {}, owners = {}, holders = {},
    largest = 0, progress = {} }, judge)
  for name, value in pairs(options or {}) do self[name] = value end
  local ops = {}
  for act, lane, number, rest in text:gmatch "(%l+) (%S+) (%d+)([^\n]*)\n" do
    local name, words = lane .. "/" .. number, {}
    for word in rest:gmatch "%S+" do table.insert(words, word) end
    ops[name] = ops[name] or { name = name, before = 0 }
    self[act](self, ops[name], words[1], words[2], words[3])
  end
  return { violations = self.violations, got = self.numbers.got, held = self.numbers.held, codes = self.codes,
    largest = self.largest, beside = self:beside(ops) }
end

return ledger
