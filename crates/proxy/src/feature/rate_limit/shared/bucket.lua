-- Token buckets. KEYS: one for each bucket. ARGV: how far ahead of now a bucket can be at most, then for each bucket how far what was
-- let in puts it ahead, and how long ago the first of that came. All in microseconds.
-- A value is the time at which the bucket is full again. Answers the time, and then each value.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local out = {now}
for i, key in ipairs(KEYS) do
  local full = tonumber(redis.call('GET', key) or '') or 0
  full = math.max(full, now - ARGV[2 * i + 1]) + ARGV[2 * i]
  full = math.min(full, now + ARGV[1])
  if full > now then
    redis.call('SET', key, string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
  end
  out[i + 1] = math.max(full, now)
end
return out
