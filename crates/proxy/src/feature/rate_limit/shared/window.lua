-- Sliding windows. KEYS: one for each key of a limit. ARGV: the length of a window in microseconds, then for each key how many were let
-- in, and how long ago the first of them came, in microseconds.
-- A value is the number of a window since 1970, what was counted in the one before, and in it. Answers the time in microseconds, and
-- then for each key what was counted in the window before this one, and in this one.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window = tonumber(ARGV[1])
local number = math.floor(now / window)
local out = {now}
for i, key in ipairs(KEYS) do
  local of, before, current = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
  of, before, current = tonumber(of) or 0, tonumber(before) or 0, tonumber(current) or 0
  if of == number - 1 then
    before, current = current, 0
  elseif of ~= number then
    before, current = 0, 0
  end
  if now - ARGV[2 * i + 1] < number * window then
    before = math.min(before + ARGV[2 * i], 1048575)
  else
    current = math.min(current + ARGV[2 * i], 1048575)
  end
  local value = string.format('%.0f %.0f %.0f', number, before, current)
  redis.call('SET', key, value, 'PX', math.ceil(window * 2 / 1000))
  out[2 * i] = before
  out[2 * i + 1] = current
end
return out
