-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A corpus as one text file instead of a thousand small files in the repository.
--
--     lua pack.lua pack DIRECTORY >FILE        lua pack.lua unpack DIRECTORY <FILE
--
-- An input is a line, in hexadecimal, with a space after every fourth byte (an instruction, in programs). Lines are
-- sorted, so that diffs are small. `pack.read(file)` returns the lines, for specs.
local pack = {}

--- The lines of a packed corpus.
function pack.read(path)
  local lines = {}
  for line in assert(io.open(path)):lines() do
    if not line:match "^#" then table.insert(lines, line) end
  end
  return lines
end

function pack.encode(bytes)
  local hex = bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  return (hex:gsub(("%x"):rep(8), "%0 "):gsub(" $", ""))
end

function pack.decode(line)
  return (line:gsub("%s", ""):gsub("%x%x", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function packed(directory)
  local lines = {}
  for name in io.popen("ls " .. quoted(directory)):lines() do
    local file = assert(io.open(directory .. "/" .. name, "rb"))
    table.insert(lines, pack.encode(file:read "*a"))
    file:close()
  end
  table.sort(lines)
  return lines
end

local function unpacked(directory)
  local number = 0
  for line in io.lines() do
    if not line:match "^#" then
      number = number + 1
      local file = assert(io.open(("%s/kept-%04d"):format(directory, number), "wb"))
      file:write(pack.decode(line))
      file:close()
    end
  end
end

if arg and arg[0] and arg[0]:match "pack%.lua$" then
  local action, directory = arg[1], arg[2]
  if action == "pack" then
    print(table.concat(packed(directory), "\n"))
  else
    unpacked(directory)
  end
end

return pack
