-- KEYS: a sorted set of members, by the time at which they count as dead.
-- ARGV: microseconds until then (0: leave), the number of members above which a change is
-- not told. Returns {members, time}.
local life, most = tonumber(ARGV[4]), tonumber(ARGV[5])
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
if changed > 0 and n <= most then tell('s', num(n)) end
return {n, num(now)}
