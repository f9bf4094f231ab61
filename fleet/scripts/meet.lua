-- KEYS: outage, holds, quotas. Returns {microseconds since the host is down, holds {scope,
-- status, microseconds …}, quotas {scope, remaining, limit, microseconds, members …}}. The
-- first is -1 if the host is not down, and -2 if nothing is known of it.
local down, holds, quotas = '-2', {}, {}
local function unpacked(s)
  local ok, v = pcall(cmsgpack.unpack, s or '')
  return ok and v
end
if packed then down = h.down == 1 and num(math.max(0, now - h.since)) or '-1' end
-- If one of these keys has the wrong type, it says nothing. The script that writes it
-- forgets it.
local all = redis.pcall('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local scope, status = string.match(all[i], '^(%x+) (%d+)$')
  local e, w = string.match(all[i + 1], '^(%d+) (%d+)$')
  local rest = e and math.min(tonumber(e) - now, tonumber(w)) or 0
  if scope and rest > 0 then
    holds[#holds + 1], holds[#holds + 2], holds[#holds + 3] = scope, status, num(rest)
  end
end
all = redis.pcall('HGETALL', KEYS[3])
for i = 1, #all, 2 do
  local v = unpacked(all[i + 1])
  if numbers(v, 8) and v[3] > now then
    local n = #quotas
    quotas[n + 1], quotas[n + 2], quotas[n + 3] = all[i], num(v[1]), num(v[2])
    quotas[n + 4], quotas[n + 5] = num(v[3] - now), num(math.max(v[6], v[7]))
  end
end
return {down, holds, quotas}
