-- KEYS: a sorted set of members, and one of the ids of their keys, by the time at which they
-- count as dead, and a key for the proof. ARGV: microseconds until then (0: leave), the number of
-- members above which a change is not told, the id of the member's key, and 1 if the member has to
-- prove its rights. Returns {members, time, ids}.
local life, most, id = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
if ARGV[7] == '1' then -- it uses what the other scripts use, before they need it
  redis.call('SET', KEYS[3], '', 'PX', 1)
  redis.call('GET', KEYS[3])
  forget(KEYS[3])
  redis.call('HSET', KEYS[3], 'a', 1)
  redis.call('HGET', KEYS[3], 'a')
  redis.call('HLEN', KEYS[3])
  redis.call('HGETALL', KEYS[3])
  redis.call('HDEL', KEYS[3], 'a')
  redis.call('ZREM', KEYS[1], '')
  tell('', '') -- nobody understands it
end
local changed = 0
if life > 0 then
  -- The first write of a script fails if Redis is out of memory. So this comes first.
  changed = redis.call('ZADD', KEYS[1], num(now + life), me)
  keep(KEYS[1], life / 1000)
else
  changed = redis.call('ZREM', KEYS[1], me)
end
changed = changed + redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', num(now))
local n = redis.call('ZCARD', KEYS[1])
if changed > 0 and n <= most then tell('s', '') end
local function ids()
  if life > 0 then
    redis.call('ZADD', KEYS[2], num(now + life), id)
    keep(KEYS[2], life / 1000)
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', num(now))
  return redis.call('ZCARD', KEYS[2])
end
local ok, count = pcall(ids)
if not ok then -- somebody else has written the key
  forget(KEYS[2])
  count = 1
end
return {n, num(now), count}
