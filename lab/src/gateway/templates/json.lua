-- JSON (RFC 8259) of texts as short as a token's, since Debian's packages of nginx' Lua bring no reader of it.
local byte, char, concat, find, sub = string.byte, string.char, table.concat, string.find, string.sub

local LITERALS = { t = { "true", true }, f = { "false", false }, n = { "null", ngx.null } }
local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }
local DEEPEST = 16

local value

-- Loops over bytes and plain finds are compiled by LuaJIT; patterns are not.
local function skip(text, at)
  local next = byte(text, at)
  while next == 32 or next == 10 or next == 13 or next == 9 do
    at = at + 1
    next = byte(text, at)
  end
  return at
end

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xc0 + math.floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xe0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xf0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
    0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

local function unit(text, at)
  return assert(find(text, "^%x%x%x%x", at) and tonumber(sub(text, at, at + 3), 16), "an escape")
end

-- From a string's quote on, if it has escapes.
local function unescaped(text, at)
  local parts = {}
  local stop = assert(find(text, '["\\]', at), "a string without an end")
  while byte(text, stop) ~= 34 do
    parts[#parts + 1] = sub(text, at, stop - 1)
    local kind = sub(text, stop + 1, stop + 1)
    at = stop + 2
    if kind == "u" then
      local code = unit(text, at)
      at = at + 4
      if code >= 0xd800 and code < 0xdc00 and sub(text, at, at + 1) == "\\u" then
        code = 0x10000 + (code - 0xd800) * 1024 + (unit(text, at + 2) - 0xdc00)
        at = at + 6
      end
      parts[#parts + 1] = utf8(code)
    else
      parts[#parts + 1] = assert(ESCAPES[kind], "an escape")
    end
    stop = assert(find(text, '["\\]', at), "a string without an end")
  end
  parts[#parts + 1] = sub(text, at, stop - 1)
  return concat(parts), stop + 1
end

-- At is that of the character behind the quote.
local function quoted(text, at)
  local stop = assert(find(text, '"', at, true), "a string without an end")
  local found = sub(text, at, stop - 1)
  if find(found, "\\", 1, true) then
    return unescaped(text, at)
  end
  return found, stop + 1
end

-- Whether what stands between brackets is over, and where the next begins.
local function next_of(text, at, close)
  at = skip(text, at)
  local next = byte(text, at)
  if next == close then
    return true, at + 1
  end
  assert(next == 44, "a comma")
  return false, skip(text, at + 1)
end

local function object(text, at, depth)
  local all = {}
  at = skip(text, at)
  if byte(text, at) == 125 then
    return all, at + 1
  end
  local is_over, name = false, nil
  while not is_over do
    assert(byte(text, at) == 34, "a name")
    name, at = quoted(text, at + 1)
    at = skip(text, at)
    assert(byte(text, at) == 58, "a colon")
    all[name], at = value(text, skip(text, at + 1), depth)
    is_over, at = next_of(text, at, 125)
  end
  return all, at
end

local function array(text, at, depth)
  local all = {}
  at = skip(text, at)
  if byte(text, at) == 93 then
    return all, at + 1
  end
  local is_over = false
  while not is_over do
    all[#all + 1], at = value(text, at, depth)
    is_over, at = next_of(text, at, 93)
  end
  return all, at
end

local function literal(text, at)
  local known = assert(LITERALS[sub(text, at, at)], "a value")
  local stop = at + #known[1]
  assert(sub(text, at, stop - 1) == known[1], "a value")
  return known[2], stop
end

local function number(text, at)
  local stop = at
  local next = byte(text, stop)
  -- Digits, a sign, a point, an exponent; tonumber() looks at their order.
  while next and (next >= 48 and next <= 57 or next == 43 or next == 45 or next == 46 or next == 69 or next == 101) do
    stop = stop + 1
    next = byte(text, stop)
  end
  return assert(tonumber(sub(text, at, stop - 1)), "a value"), stop
end

function value(text, at, depth)
  assert(depth < DEEPEST, "too deep")
  local first = byte(text, at)
  if first == 34 then
    return quoted(text, at + 1)
  elseif first == 123 then
    return object(text, at + 1, depth + 1)
  elseif first == 91 then
    return array(text, at + 1, depth + 1)
  elseif first and (first >= 48 and first <= 57 or first == 45) then
    return number(text, at)
  end
  return literal(text, at)
end

-- The value of a text, or nil.
return function(text)
  local is_good, found, at = pcall(value, text, skip(text, 1), 0)
  if is_good and skip(text, at) == #text + 1 then
    return found
  end
end
