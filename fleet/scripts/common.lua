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
