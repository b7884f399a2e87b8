-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- The size of the terminal, and output for places where lanes cannot be drawn.

local terminal = {}

local function is_terminal()
  local status = os.execute "test -t 1"
  return (status == true or status == 0) and (os.getenv "TERM" or "dumb") ~= "dumb"
end

--- Its rows and columns; nil if there is no terminal, or one with too few rows to draw on.
function terminal.size()
  if not is_terminal() then return nil end
  local stty = io.popen "stty size 2>/dev/null </dev/tty"
  local rows, columns = stty:read("*a"):match "(%d+) (%d+)"
  stty:close()
  if not rows or rows == "0" then return 24, 80 end -- the terminal does not tell
  if tonumber(rows) >= 12 then return tonumber(rows), tonumber(columns) end
end

local function length(text) return #text:gsub("[\128-\191]", "") end -- in characters, of UTF-8

--- Breaks every line of a text between words, so that it is shorter than the terminal is wide.
function terminal.fold(text, width)
  local lines = {}
  for paragraph in text:gmatch "[^\n]+" do
    local line = paragraph:match "^%s*%S*"
    for word in paragraph:sub(#line + 1):gmatch "%S+" do
      if length(line) + length(word) + 1 < width then
        line = line .. " " .. word
      else
        lines[#lines + 1], line = line, word
      end
    end
    lines[#lines + 1] = line
  end
  return table.concat(lines, "\n")
end

local Lines = {}
Lines.__index = Lines

--- Replaces lanes where they cannot be drawn.
function terminal.lines() return setmetatable({ told = 0 }, Lines) end

function Lines.legend() return "A line for every event, with the seconds since the beginning:" end

function Lines:draw(ledger, now, line)
  if line ~= "" then print(("%7.2f  %s"):format(now, (line:gsub("%s+", " ")))) end
  for i = self.told + 1, #ledger.remarks do print(("%7.2f  -- %s"):format(now, ledger.remarks[i].text)) end
  self.told = #ledger.remarks
end

return terminal
