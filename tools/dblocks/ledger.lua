-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The witness of `make torture-db`: a file of lines, and its judge. Each line is one write with O_APPEND, so the place
-- of a line is the order of events, without any clock and without a database:
--
--     in LANE KIND       the process has got a lock: "read" or "write"
--     out LANE           it will release it now, or has seen that an operator broke it
--     dead LANE          the process was killed; after this line an operator breaks what it held
--     lost LANE          a lock was lost that no operator broke
--     code LANE CODE     an acquire or a release that failed
--
-- A lock of db-locks ends by nothing but its release and the operator. So between its `in` and its `out`, or `dead`,
-- nobody else may come in beside a writer: also while the process is stopped.
local ledger = {}

--- Judges a text. Returns { violations = list of texts, got = { read =, write = }, most = readers at once, codes = }.
function ledger.check(text)
  local found = { violations = {}, got = { read = 0, write = 0 }, most = 0, codes = {} }
  local inside, count = {}, { read = 0, write = 0 }

  local function wrong(...) table.insert(found.violations, (...):format(select(2, ...))) end

  local acts = {}

  acts["in"] = function(lane, kind)
    if inside[lane] then wrong("%s came in twice", lane) end
    if count.write > 0 or kind == "write" and count.read > 0 then
      wrong("%s came in to %s beside %d readers and %d writers", lane, kind, count.read, count.write)
    end
    inside[lane] = kind
    count[kind] = count[kind] + 1
    found.got[kind] = found.got[kind] + 1
    found.most = math.max(found.most, count.read)
  end

  function acts.out(lane)
    local kind = inside[lane]
    if not kind then return wrong("%s went out twice", lane) end
    inside[lane] = nil
    count[kind] = count[kind] - 1
  end

  function acts.dead(lane)
    if inside[lane] then acts.out(lane) end
  end

  function acts.lost(lane) wrong("%s has lost its lock", lane) end

  function acts.code(_, code) found.codes[code] = (found.codes[code] or 0) + 1 end

  for act, lane, word in text:gmatch "(%S+) (%S+) ?(%S*)\n" do acts[act](lane, word) end
  return found
end

return ledger
