-- Adds the uses of quotas, and returns the window and the total of each.
-- KEYS: a hash for each quota: s (start of the window), u (uses), and the number of the last batch of each data plane.
-- ARGV: the name of the data plane and the number of the batch; then for each key the start of the window, its end in
-- milliseconds, the uses, and all uses that the data plane knows. The server may have lost its counts.
local totals = {}
for n, key in ipairs(KEYS) do
  local at = 4 * n - 1
  local start = redis.call('HGET', key, 's')
  if not start then
    start = ARGV[at]
    redis.call('HSET', key, 's', start)
    redis.call('PEXPIREAT', key, ARGV[at + 1])
  end
  -- A batch without an answer comes again, and counts once.
  if redis.call('HGET', key, ARGV[1]) ~= ARGV[2] then
    redis.call('HSET', key, ARGV[1], ARGV[2])
    local total = redis.call('HINCRBY', key, 'u', ARGV[at + 2])
    if start == ARGV[at] and total < tonumber(ARGV[at + 3]) then
      redis.call('HSET', key, 'u', ARGV[at + 3])
    end
  end
  totals[2 * n - 1] = tonumber(start)
  totals[2 * n] = tonumber(redis.call('HGET', key, 'u'))
end
return totals
