-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Mutants of a C file: small changes within the bodies of its functions, each of which a spec should notice.
--
--     local sites = mutants.sites(text)             -- all that a file has
--     sites[1].line, sites[1].column, sites[1].kind -- negate, turn, plus, minus, call or return
--     mutants.apply(text, sites[1])                 -- the text with this change
--     mutants.draw(30, #sites, seed)                -- 30 different numbers from 1 to #sites
--
-- The files are formatted by clang-format, and the lexer relies on it: operators stand apart.
local mutants = {}

-- Tokens, without comments and preprocessor lines -------------------------------------------------------------------

local SKIPPED = { "^%s+", "^//[^\n]*", "^/%*.-%*/" }
local TOKENS = { "^[%a_][%w_]*", "^%d+%.?%d*[eE][+-]?%d+", "^%d[%w.]*", "^[%+%-%*/%%&|^<>=!]+", "^." }

local function find_quoted(text, first)
  local quote, at = text:sub(first, first), first + 1
  if quote ~= '"' and quote ~= "'" then return nil end
  while text:sub(at, at) ~= quote do at = at + (text:sub(at, at) == "\\" and 2 or 1) end
  return at
end

local function find_directive(text, first)
  if text:sub(first, first) ~= "#" then return nil end
  local last = first
  repeat last = text:find("\n", last + 1, true) or #text until text:sub(last - 1, last - 1) ~= "\\"
  return last
end

local function find_any(patterns, text, at)
  for _, pattern in ipairs(patterns) do
    local _, last = text:find(pattern, at)
    if last then return last end
  end
end

local function tokens_of(text)
  local tokens, at, line, begins = {}, 1, 1, 1
  while at <= #text do
    local skipped = find_any(SKIPPED, text, at) or find_directive(text, at)
    local last = skipped or find_quoted(text, at) or find_any(TOKENS, text, at)
    if skipped then
      for feed in text:sub(at, last):gmatch "()\n" do line, begins = line + 1, at + feed end
    else
      local column = at - begins + 1
      table.insert(tokens, { text = text:sub(at, last), first = at, last = last, line = line, column = column })
    end
    at = last + 1
  end
  return tokens
end

-- Sites -------------------------------------------------------------------------------------------------------------

local CLOSING = { ["("] = ")", ["{"] = "}", ["["] = "]" }
local TURNED = { ["=="] = "!=", ["!="] = "==", ["<"] = "<=", ["<="] = "<", [">"] = ">=", [">="] = ">", ["&&"] = "||",
  ["||"] = "&&" }
local CONDITIONAL = { ["if"] = true, ["while"] = true, ["for"] = true }
local NO_CALL = { ["if"] = true, ["while"] = true, ["for"] = true, ["switch"] = true, ["return"] = true }
local BEFORE_STATEMENT = { [";"] = true, ["{"] = true, ["}"] = true, ["else"] = true, [":"] = true }

-- The text of tokens i to j becomes `with`. The place is that of token `at`.
local function add(body, kind, at, i, j, with)
  local site = { kind = kind, first = body.tokens[i].first, last = body.tokens[j].last }
  site.line, site.column = body.tokens[at].line, body.tokens[at].column
  site.with = with:gsub("%%s", function () return body.text:sub(site.first, site.last) end)
  table.insert(body.sites, site)
end

local function closing(tokens, i)
  local opens, closes, depth = tokens[i].text, CLOSING[tokens[i].text], 0
  repeat
    local text = tokens[i].text
    depth = depth + (text == opens and 1 or text == closes and -1 or 0)
    i = i + 1
  until depth == 0
  return i - 1
end

local function next_semicolon(tokens, i)
  while tokens[i].text ~= ";" do i = CLOSING[tokens[i].text] and closing(tokens, i) + 1 or i + 1 end
  return i
end

-- The condition of if, while and for.
local function add_condition(body, i)
  local tokens, keyword = body.tokens, body.tokens[i].text
  if not CONDITIONAL[keyword] then return end
  local first, last = i + 2, closing(tokens, i + 1) - 1
  body.heads[last + 1] = true
  if keyword == "for" then
    first = next_semicolon(tokens, first) + 1
    last = next_semicolon(tokens, first) - 1
  end
  if first <= last then add(body, "negate", i, first, last, "!(%s)") end
end

-- `char text[8];` declares: another size changes nothing.
local function is_size(tokens, i)
  local before = tokens[i - 3].text
  return tokens[i - 1].text == "[" and tokens[i + 1].text == "]" and before:find "^[%a_*]" and before ~= "return"
end

local function add_constant(body, i)
  local number = body.tokens[i].text
  if not (number:find "^%d+[uUlL]*$" or number:find "^0[xX]%x+[uUlL]*$") or is_size(body.tokens, i) then return end
  add(body, "plus", i, i, i, "(%s + 1)")
  add(body, "minus", i, i, i, "(%s - 1)")
end

-- A statement that is a call, of a name or of a member, and nothing else.
local function add_call(body, i)
  local tokens, j = body.tokens, i
  local is_statement = BEFORE_STATEMENT[tokens[i - 1].text] or body.heads[i - 1]
  if not is_statement or not tokens[i].text:find "^[%a_]" or NO_CALL[tokens[i].text] then return end
  while tokens[j + 1].text == "->" or tokens[j + 1].text == "." do j = j + 2 end
  if tokens[j + 1].text ~= "(" then return end
  local last = closing(tokens, j + 1)
  if tokens[last + 1].text == ";" then add(body, "call", i, i, last, "") end
end

-- The last return of a function gets another value, where it has one: without it the value would be accidental.
local function add_return(body, i)
  if body.tokens[i].text ~= "return" then return end
  local last = next_semicolon(body.tokens, i) - 1
  local value = body.text:sub(body.tokens[i].last + 1, body.tokens[last].last):match "^%s*(.*)$"
  if last + 2 < body.last then
    add(body, "return", i, i, last, "")
  elseif last > i then
    add(body, "return", i, i + 1, last, (value == "0" or value == "false" or value == "NULL") and "1" or "0")
  end
end

local function add_all(body, first)
  for i = first, body.last do
    local turned = TURNED[body.tokens[i].text]
    if turned then add(body, "turn", i, i, i, turned) end
    add_condition(body, i)
    add_constant(body, i)
    add_call(body, i)
    add_return(body, i)
  end
end

--- All mutants of a C file, each { line, column, kind, ... }. A brace after a parenthesis begins a function; what other
-- braces of the file hold declares.
function mutants.sites(text)
  local tokens, sites, i = tokens_of(text), {}, 1
  while i <= #tokens do
    if tokens[i].text == "{" then
      local last = closing(tokens, i)
      local body = { text = text, tokens = tokens, last = last, heads = {}, sites = sites }
      if i > 1 and tokens[i - 1].text == ")" then add_all(body, i + 1) end
      i = last
    end
    i = i + 1
  end
  return sites
end

function mutants.apply(text, site) return text:sub(1, site.first - 1) .. site.with .. text:sub(site.last + 1) end

-- Drawing -----------------------------------------------------------------------------------------------------------

--- Draws `count` different numbers from 1 to `total`; all, if there are not so many. The first ones are the same for
-- every count. The generator is that of Park and Miller, whose products fit into the numbers of every Lua.
function mutants.draw(count, total, seed)
  local state, moved, drawn = seed % 2147483646 + 1, {}, {}
  for i = 1, math.min(count, total) do
    state = state * 48271 % 2147483647
    local j = i + state % (total - i + 1)
    drawn[i], moved[j] = moved[j] or j, moved[i] or i
  end
  return drawn
end

return mutants
