-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Counters, gauges and histograms of one process, and Prometheus' text format 0.0.4. Metrics have the methods of
-- nginx-lua-prometheus: inc(value, labels), set(value, labels), observe(value, labels), where `labels` is a list of
-- values.
local registry = {}
registry.__index = registry

function registry.new() return setmetatable({ _metrics = {} }, registry) end

-- ---- text -----------------------------------------------------------------------------------------------------------

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

local function escaped(value) return (tostring(value):gsub('[\\"\n]', ESCAPES)) end

-- With a point, whatever the program's locale has in its place.
local function number(value)
  if value == math.huge then return "+Inf" end
  if value % 1 == 0 and math.abs(value) < 2 ^ 53 then return ("%.0f"):format(value) end
  return (("%.10g"):format(value):gsub("[^0-9a-z+-]+", "."))
end

-- `le`: the bound of a bucket, or nil.
local function labels_text(names, values, le)
  local parts = {}
  for i, name in ipairs(names) do parts[i] = ('%s="%s"'):format(name, escaped(values[i])) end
  if le then table.insert(parts, ('le="%s"'):format(number(le))) end
  return #parts > 0 and "{" .. table.concat(parts, ",") .. "}" or ""
end

-- ---- metrics --------------------------------------------------------------------------------------------------------

local Metric = {}
Metric.__index = Metric

-- One series for each list of label values.
function Metric:series(labels)
  local key = table.concat(labels, "\0")
  local one = self._series[key]
  if not one then
    one = { labels = labels, value = 0, key = key }
    self._series[key] = one
  end
  return one
end

--- Adds to a counter or a gauge.
function Metric:inc(value, labels)
  local one = self:series(labels or {})
  one.value = one.value + value
end

--- Sets a gauge.
function Metric:set(value, labels) self:series(labels or {}).value = value end

--- Counts a value in a histogram.
function Metric:observe(value, labels)
  local one = self:series(labels or {})
  one.counts, one.count = one.counts or {}, (one.count or 0) + 1
  one.value = one.value + value
  for i, bound in ipairs(self.buckets) do
    if value <= bound then one.counts[i] = (one.counts[i] or 0) + 1 end
  end
end

local function histogram_lines(self, one, lines)
  for i, bound in ipairs(self.buckets) do
    table.insert(lines, ("%s_bucket%s %d"):format(self.name, labels_text(self.labels, one.labels, bound),
      one.counts[i] or 0))
  end
  table.insert(lines, ("%s_bucket%s %d"):format(self.name, labels_text(self.labels, one.labels, math.huge), one.count))
  local labels = labels_text(self.labels, one.labels)
  table.insert(lines, ("%s_sum%s %s"):format(self.name, labels, number(one.value)))
  table.insert(lines, ("%s_count%s %d"):format(self.name, labels, one.count))
end

function Metric:lines(lines)
  local list = {}
  for _, one in pairs(self._series) do table.insert(list, one) end
  table.sort(list, function(a, b) return a.key < b.key end)
  if #list == 0 then return end
  table.insert(lines, ("# HELP %s %s"):format(self.name, self.help))
  table.insert(lines, ("# TYPE %s %s"):format(self.name, self.type))
  for _, one in ipairs(list) do
    if self.buckets then
      histogram_lines(self, one, lines)
    else
      table.insert(lines, ("%s%s %s"):format(self.name, labels_text(self.labels, one.labels), number(one.value)))
    end
  end
end

local function add(self, type, name, help, labels, buckets)
  local metric = setmetatable({ type = type, name = name, help = help, labels = labels or {}, buckets = buckets,
    _series = {} }, Metric)
  table.insert(self._metrics, metric)
  return metric
end

function registry:counter(name, help, labels) return add(self, "counter", name, help, labels) end

function registry:gauge(name, help, labels) return add(self, "gauge", name, help, labels) end

function registry:histogram(name, help, labels, buckets) return add(self, "histogram", name, help, labels, buckets) end

--- Returns all metrics that have a value, in Prometheus' text format.
function registry:text()
  local lines = {}
  for _, metric in ipairs(self._metrics) do metric:lines(lines) end
  table.insert(lines, "")
  return table.concat(lines, "\n")
end

return registry
