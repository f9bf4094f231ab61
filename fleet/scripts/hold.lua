-- ARGV: host, scope, status, wait in microseconds, the least time between two messages about
-- a hold, and the greatest number of holds kept.
-- A field of the hash is a scope and a status. Its value is the end and the wait.
-- Returns 0 if nobody was told, else 1 and the number of holds that made room.
local host, scope, status = ARGV[4], ARGV[5], ARGV[6]
local wait, gap, most = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local field = scope .. ' ' .. status
local function rest(value)
  local e, w = string.match(value or '', '^(%d+) (%d+)$')
  return e and math.min(tonumber(e) - now, tonumber(w)) or 0
end
local left = rest(redis.call('HGET', KEYS[1], field))
-- A hold that ends little later than they know is not told again.
local little = math.max(HOLD_SLACK, math.min(gap, wait / 4))
if left > 0 and wait <= left + little then return 0 end
wait = math.max(wait, left)
local gone = 0
if left == 0 then
  -- A hold was told its wait before its end.
  gone = room(KEYS[1], most, function(name, value)
    local e, w = string.match(value, '^(%d+) (%d+)$')
    if rest(value) <= 0 then return 0 end
    return math.min(now, tonumber(e) - tonumber(w))
  end)
end
redis.call('HSET', KEYS[1], field, num(now + wait) .. ' ' .. num(wait))
keep(KEYS[1], wait / 1000)
tell('h', scope .. ' ' .. status .. ' ' .. num(wait) .. ' ' .. host)
return 1 + gone
