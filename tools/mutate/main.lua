-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The questions of tools/mutate/run:
--
--     main.lua list COUNT SEED FILE...     prints so many mutants of these files, each as file:line:column:kind
--     main.lua write MUTANT PATH           writes the changed file to PATH; prints what was changed
--     main.lua report LIST RESULTS WANTED  prints what became of the mutants in the file LIST
--
-- RESULTS is a folder with a file for each mutant, whose name is the mutant's with commas for slashes. It holds a line
-- of fields with tabs between: outcome (caught, survived, refused or same), spec file, seconds, what was changed.
local mutants = require "tools.mutate.mutants"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

local function name_of(path, site) return ("%s:%d:%d:%s"):format(path, site.line, site.column, site.kind) end

local function list(count, seed, ...)
  local all = {}
  for _, path in ipairs{ ... } do
    for _, site in ipairs(mutants.sites(read(path))) do table.insert(all, name_of(path, site)) end
  end
  for _, i in ipairs(mutants.draw(tonumber(count), #all, tonumber(seed))) do print(all[i]) end
end

-- On one line, of at most 100 characters.
local function short(text)
  text = text:gsub("%s+", " ")
  return #text > 100 and text:sub(1, 97) .. "..." or text
end

local function find(mutant)
  local path, line = mutant:match "^([^:]+):(%d+)"
  local found, text = pcall(read, path)
  local others = {}
  for _, site in ipairs(found and mutants.sites(text) or {}) do
    local name = name_of(path, site)
    if name == mutant then return text, site end
    if site.line == tonumber(line) then table.insert(others, name) end
  end
  io.stderr:write("there is no mutant ", mutant, "; those of its line are: ", table.concat(others, ", "), "\n")
  os.exit(2)
end

local function write(mutant, path)
  local text, site = find(mutant)
  local file = assert(io.open(path, "w"))
  file:write(mutants.apply(text, site))
  file:close()
  print(short(text:sub(site.first, site.last)) .. " -> " .. (site.with == "" and "(nothing)" or short(site.with)))
end

-- The report --------------------------------------------------------------------------------------------------------

local function result_of(mutant, results)
  local file = io.open(results .. "/" .. mutant:gsub("/", ","))
  if not file then return nil end
  local outcome, spec, seconds, change = file:read "*a":match "^(%a+)\t(%S*)\t([%d.]+)\t(.-)\n"
  file:close()
  return { mutant = mutant, outcome = outcome, spec = spec, seconds = tonumber(seconds), change = change }
end

-- A table whose rows are counts of the results, by what `key` calls them.
local function print_table(title, results, key)
  local rows, names = {}, {}
  local function note(name, caught_by)
    if not rows[name] then
      rows[name] = { all = 0, survived = 0, unit = 0, sim = 0, broker = 0 }
      table.insert(names, name)
    end
    rows[name].all, rows[name][caught_by] = rows[name].all + 1, rows[name][caught_by] + 1
  end
  for _, result in ipairs(results) do
    local caught_by = result.spec:match "^spec/(%a+)" or "survived"
    note(key(result), caught_by)
    note("(all)", caught_by)
  end
  table.sort(names)
  print(("\n%-34s %8s %6s %6s %6s %9s %7s"):format(title, "mutants", "unit", "sim", "broker", "survived", "caught"))
  for _, name in ipairs(names) do
    local row = rows[name]
    print(("%-34s %8d %6d %6d %6d %9d %6.1f%%"):format(name, row.all, row.unit, row.sim, row.broker, row.survived,
      100 - 100 * row.survived / row.all))
  end
end

-- The survivors, each with the line of its file.
local function print_survivors(results)
  print "\nsurvivors"
  for _, result in ipairs(results) do
    local path, line = result.mutant:match "^([^:]+):(%d+)"
    if result.outcome == "survived" then
      local text = read(path)
      for _ = 2, tonumber(line) do text = text:match "^[^\n]*\n(.*)$" end
      print(("%s   %s\n    %s"):format(result.mutant, result.change, text:match "^%s*([^\n]*)"))
    end
  end
end

local function report(names, folder, wanted)
  local counted, refused, same, seconds = {}, 0, 0, 0
  for mutant in io.lines(names) do
    local result = result_of(mutant, folder)
    if result then seconds = seconds + result.seconds end
    if result and result.outcome == "refused" then
      refused = refused + 1
    elseif result and result.outcome == "same" then
      same = same + 1
    else
      table.insert(counted, result)
    end
  end
  print(("%d of %s mutants; each took a job %.0f s. Not counted: %d that do not compile, %d that compile to the same"):
    format(#counted, wanted, seconds / math.max(#counted, 1), refused, same))
  print_table("folder", counted, function (result) return result.mutant:match "^src/(.*)/" end)
  print_table("file", counted, function (result) return result.mutant:match "^src/([^:]*)" end)
  print_table("kind of mutant", counted, function (result) return result.mutant:match "%a+$" end)
  print_survivors(counted)
end

local verbs = { list = list, write = write, report = report }
verbs[arg[1]]((table.unpack or unpack)(arg, 2))
