-- ARGV: host, scope, remaining, limit, reset in microseconds, the period in which this
-- member was counted last, the least time between two messages, the greatest number of
-- quotas kept.
-- A field of the hash is a scope. Members are counted per period, and each member sends
-- the period in which it was counted. So there is no list of members.
-- Returns {period, members, the number of quotas that made room}.
local host, scope = ARGV[4], ARGV[5]
local reset = tonumber(ARGV[8])
local known, gap, most = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11])
local function read(packed)
  local ok, v = pcall(cmsgpack.unpack, packed or '')
  if ok and numbers(v, 8) then
    return {ends = v[3], period = v[4], over = v[5], count = v[6], before = v[7], told = v[8]}
  end
end
local q = read(redis.call('HGET', KEYS[1], scope))
local new = not q
q = q or {period = 0, over = 0, count = 0, before = 0, told = 0}
if now >= q.over or q.over > now + MAX_PERIOD then
  q.before = now - q.over < MAX_PERIOD and q.count or 0
  q.count, q.period = 0, now
  q.over = now + math.max(MIN_PERIOD, math.min(reset, MAX_PERIOD))
end
local period = num(q.period)
if known ~= period then q.count = q.count + 1 end
local members = math.max(q.count, q.before)
local told = q.told > now or now - q.told >= gap
if told then q.told = now end
local gone = 0
if new then
  gone = room(KEYS[1], most, function(name, value)
    local old = read(value)
    if not old or old.ends <= now then return 0 end
    return math.min(now, old.told)
  end)
end
redis.call('HSET', KEYS[1], scope, cmsgpack.pack({tonumber(ARGV[6]), tonumber(ARGV[7]), now + reset, q.period, q.over, q.count, q.before, q.told}))
keep(KEYS[1], math.max(reset, q.over - now) / 1000 + 1)
if told then
  tell('q', scope .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. num(reset) .. ' ' .. num(members) .. ' ' .. host)
end
return {period, members, gone}
