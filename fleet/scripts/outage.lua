-- The state of a host: package internal/ledger, type Host. It is a single string, so that
-- it is always written together with its expiry. In microseconds.
local KEEP = 600000 -- ms
-- During an upgrade members of two versions use the same state. A later version may append
-- fields, and an earlier one may have fewer. A field that is missing or has another type gets
-- its first value, and a field that this version does not know stays.
local NAMES = {'down', 'since', 'next', 'worked', 'failing'}
local h = {down = 0, since = 0, next = 0, worked = -1, failing = {}}
local fields = {}
local packed = redis.call('GET', KEYS[1])
if packed then
  local ok, v = pcall(cmsgpack.unpack, packed)
  if ok and type(v) == 'table' then
    fields = v
    for i, name in ipairs(NAMES) do
      if type(v[i]) == type(h[name]) then h[name] = v[i] end
    end
  end
end
-- After a failover the clock of Redis may be behind. Then no time is further ahead than
-- the rules allow.
h.worked, h.next = math.min(h.worked, now), math.min(h.next, now + MIN_APART)
local function save()
  for i, name in ipairs(NAMES) do fields[i] = h[name] end
  redis.call('SET', KEYS[1], cmsgpack.pack(fields), 'PX', KEEP)
end
