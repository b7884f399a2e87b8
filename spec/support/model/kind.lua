-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What the kinds of locks (kinds/) do alike. A kind has a `crowd`, a `broker`, the name of its `bell` and of its
-- `queue`, and a `noun`. watch.lua lists what it asks of a kind. The other functions are for the story.
local Kind = {}
Kind.__index = Kind

local TOKEN = { type = "amqplocks.token", delivery_mode = 2 }
local BELL = { durable = true, arguments = { ["x-queue-type"] = "classic", ["x-expires"] = 60000, ["x-max-length"] = 1,
  ["x-overflow"] = "drop-head" } }

--- A new kind; `fields` are common to its objects.
function Kind.extend(fields)
  fields.__index = fields
  return setmetatable(fields, Kind)
end

--- The bell (or the queue that is its own bell), as a client makes it.
function Kind:make_bell() self.broker:declare(self.bell, self.shape or BELL) end

function Kind:ring(count) self.broker:put(self.bell, count, TOKEN) end

--- Another client used the lock before, and has just left.
function Kind:be_used()
  self:make_bell()
  self:ring(1)
end

--- The object by which a process acquires: the same one each time, if the story wants that.
function Kind:object(process, method, name)
  local options = self.crowd.options
  local retain = process.name:sub(1, 1) ~= options.spared and options.retain or nil
  local object = options.same_object and process.object
    or process.peer[method](process.peer, name, { fenced = options.fenced, retain = retain })
  process.object = object
  return object
end

--- Whether a queue of this name may be left in the end.
function Kind:stays(queue)
  return queue == self.bell or self.fence and (queue == self.fence or queue == self.fence .. "-unfinished")
    or self.many and queue == self.many.bell
end

--- Whatever the broker alone can clear up, when nobody wants anything any more.
function Kind.settle() end

--- What is wrong in the end, if anything.
function Kind.flaw() return nil end

--- Of the fencing tokens of a lock that is a queue: see watch.lua.
function Kind:given(belief) return { birth = self.crowd.watch:birth(belief.process:connection(), belief.queue) } end
function Kind.may_equal() return false end
function Kind:has_order(one, other) return one.group == other.group and self:clash{ other, one } end

function Kind:wish() return self.noun end
function Kind:wish_of() return self.noun end
function Kind:queue_of() return self.queue end
function Kind.group_of() return 1 end
function Kind:changed(queue) if self.many then self.many:changed(queue) end end
function Kind.refuses() return nil end
function Kind.held_by() return nil end

return Kind
