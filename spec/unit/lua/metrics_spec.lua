-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The metrics that events make, in Prometheus' text format.
local metrics = require "amqplocks.metrics"

local function lines(text, pattern)
  local list = {}
  for line in text:gmatch "[^\n]+" do
    if line:find(pattern) then table.insert(list, line) end
  end
  return list
end

local function lock(what, more)
  local event = { what = what, kind = "mutex", name = "db" }
  for key, value in pairs(more or {}) do event[key] = value end
  return event
end

describe("metrics", function()
  it("count what was acquired, released and lost, and how long that took", function()
    local m = metrics.new{ buckets = { 0.1, 1 } }
    m.observe(lock("acquired", { waited = 0.05 }))
    m.observe(lock "waiting")
    m.observe(lock("acquired", { waited = 0.5, in_line = true }))
    m.observe(lock "waiting")
    m.observe(lock("released", { held = 2 }))
    m.observe(lock("failed", { waited = 3, code = "timeout", in_line = true }))
    m.observe(lock "waiting")
    m.observe(lock("lost", { held = 0.1, code = "lost" }))
    m.observe(lock "revoked")
    local text = m.text()
    assert.same({
      "# HELP amqplocks_acquire_seconds Time that acquires took, by result.",
      "# TYPE amqplocks_acquire_seconds histogram",
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="acquired",le="0.1"} 1',
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="acquired",le="1"} 2',
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="acquired",le="+Inf"} 2',
      'amqplocks_acquire_seconds_sum{kind="mutex",name="db",result="acquired"} 0.55',
      'amqplocks_acquire_seconds_count{kind="mutex",name="db",result="acquired"} 2',
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="timeout",le="0.1"} 0',
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="timeout",le="1"} 0',
      'amqplocks_acquire_seconds_bucket{kind="mutex",name="db",result="timeout",le="+Inf"} 1',
      'amqplocks_acquire_seconds_sum{kind="mutex",name="db",result="timeout"} 3',
      'amqplocks_acquire_seconds_count{kind="mutex",name="db",result="timeout"} 1',
    }, lines(text, "amqplocks_acquire"))
    for _, what in ipairs{ "up", "down", "up", "blocked", "unblocked" } do m.observe{ what = what, link = "holder" } end
    for _, line in ipairs{ 'held{kind="mutex",name="db"} 0', 'waiting{kind="mutex",name="db"} 1',
      'lost_total{kind="mutex",name="db",code="lost"} 1', 'revoked_total{kind="mutex",name="db"} 1',
      'contended_total{kind="mutex",name="db"} 0', -- Prometheus sees only growth
      'hold_seconds_count{kind="mutex",name="db"} 2', 'connection_up{link="holder"} 1', 'opened_total{link="holder"} 2',
      'blocked{link="holder"} 0' } do
      assert.is_truthy(m.text():find("\namqplocks_" .. line .. "\n", 1, true), line)
    end
    assert.matches('amqplocks_info{version="%d+%.%d+%.%d+"} 1\n', m.text())
  end)

  it("ignore events, and count codes, kinds and links, that they do not know", function()
    local m = metrics.new()
    local before = m.text()
    m.observe{ what = "renewed", at = 1 }
    m.observe(lock "renewed")
    assert.equal(before, m.text())
    m.observe{ what = "failed", kind = "lease", name = "db", code = "expired", waited = 1, more = {} }
    m.observe{ what = "up", link = "relay" }
    assert.matches('amqplocks_acquire_seconds_count{kind="lease",name="db",result="expired"} 1\n', m.text())
    assert.matches('amqplocks_connection_up{link="relay"} 1\n', m.text())
  end)

  it("have at most a hundred names, escaped, and the label that is chosen for one", function()
    local function revoked(m, pattern) return lines(m.text(), "^amqplocks_revoked" .. (pattern or "")) end
    local m, chosen = metrics.new(), metrics.new{ label = function(name) return (name:gsub("%d+", "N")) end }
    m.observe(lock("revoked", { name = 'a"b\\c\nd' }))
    assert.same({ [[amqplocks_revoked_total{kind="mutex",name="a\"b\\c\nd"} 1]] }, revoked(m))
    for i = 1, 150 do
      m.observe(lock("revoked", { name = "job-" .. i }))
      chosen.observe(lock("revoked", { name = "job-" .. i }))
    end
    m.observe(lock("revoked", { name = "job-7" }))
    assert.equal(101, #revoked(m))
    assert.same({ 'amqplocks_revoked_total{kind="mutex",name="other"} 51' }, revoked(m, '.*"other"'))
    assert.same({ 'amqplocks_revoked_total{kind="mutex",name="job-7"} 2' }, revoked(m, '.*"job%-7"'))
    assert.same({ 'amqplocks_revoked_total{kind="mutex",name="job-N"} 150' }, revoked(chosen))
  end)

  it("may be kept by nginx-lua-prometheus", function()
    local calls = {}
    local function make(_, name)
      local function note(act)
        return function(_, value, labels)
          table.insert(calls, ("%s %s %s %s"):format(name, act, value, table.concat(labels, "/")))
        end
      end
      return { inc = note "inc", set = note "set", observe = note "observe" }
    end
    local watch -- of the connections of an nginx worker
    package.loaded["amqplocks.nginx.links"] = { watch = function(fn) watch = fn end }
    local m = metrics.new()
    m.nginx{ counter = make, gauge = make, histogram = make }
    package.loaded["amqplocks.nginx.links"] = nil
    m.observe(lock("acquired", { waited = 0.5 }))
    assert.matches("^amqplocks_info set 1 ", calls[1])
    assert.same({ "amqplocks_acquire_seconds observe 0.5 mutex/db/acquired", "amqplocks_held inc 1 mutex/db" },
      { calls[#calls - 1], calls[#calls] })
    for _, opened in ipairs{ 9, 11 } do
      calls = {}
      watch{ worker = "3", up = { holder = 5, prober = 1, quorum = 0 },
        opened = { holder = opened, prober = 2, quorum = 0 }, blocked = 1,
        silence = 4 }
      local told = table.concat(calls, "\n")
      for _, line in ipairs{ "connection_up set 5 holder/3", "blocked set 1 prober/3", "broker_silence_seconds set 4 3",
        ("opened_total inc %d holder"):format(opened == 9 and 9 or 2) } do
        assert.is_truthy(told:find("amqplocks_" .. line, 1, true), line)
      end
    end
  end)

  it("count once what connections that share a session have in common", function()
    local count, tell = 0, {}
    local function connection(session)
      return {
        _session = session,
        stats = function() return { contended = count, retained = 2 * count } end,
        on_event = function(_, fn) table.insert(tell, fn) end,
      }
    end
    local m, session = metrics.new(), {}
    m.listen(connection(session))
    count = 3
    m.listen(connection(session))
    for _, fn in ipairs(tell) do fn(lock("acquired", { waited = 0.1 })) end
    assert.same({ 'amqplocks_contended_total{kind="mutex",name="db"} 3' }, lines(m.text(), "^amqplocks_contended"))
    assert.same({ 'amqplocks_retained_total{kind="mutex",name="db"} 6' }, lines(m.text(), "^amqplocks_retained"))
  end)
end)
