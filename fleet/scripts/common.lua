-- The beginning of every script. ARGV[1] is the time in microseconds in tests, and empty
-- otherwise. ARGV[2] is the member, ARGV[3] the channel. The channel is empty if the news
-- is not shared.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local me, channel = ARGV[2], ARGV[3]
local function num(x) return string.format('%.0f', x) end
local function tell(kind, rest)
  if channel ~= '' then
    redis.call('PUBLISH', channel, '1 ' .. kind .. ' ' .. num(now) .. ' ' .. me .. ' ' .. rest)
  end
end
-- forget deletes a key. It does not need the right to DEL.
local function forget(key) redis.call('PEXPIRE', key, 0) end
-- numbers reports whether a list has n elements, and all of them are numbers.
local function numbers(list, n)
  if type(list) ~= 'table' or #list ~= n then return false end
  for i = 1, n do
    local x = list[i]
    if type(x) ~= 'number' or x ~= x or math.abs(x) > 2^53 then return false end
  end
  return true
end
-- keep gives a key at least ms milliseconds more to live.
local function keep(key, ms)
  ms = math.ceil(ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, num(ms)) end
end
-- room makes room in a hash for one more field of so many. What is over goes, or else what was
-- told longest ago. told returns when a field was told, 0 if it is over, and nil if it does not
-- count. Returns how many went that were not over.
local function room(key, most, told)
  if redis.call('HLEN', key) < most then return 0 end
  local count, gone, oldest, at = 0, 0, nil, nil
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local t = told(all[i], all[i + 1])
    if t == 0 then redis.call('HDEL', key, all[i]) end
    if t and t ~= 0 then
      count = count + 1
      if not at or t < at then oldest, at = all[i], t end
    end
  end
  if count >= most then
    redis.call('HDEL', key, oldest)
    gone = 1
  end
  return gone
end
