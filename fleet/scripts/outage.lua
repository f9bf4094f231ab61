-- The state of a host: package internal/ledger, type Host. It is a single string, so that
-- it is always written together with its expiry. In microseconds.
local KEEP = 600000 -- ms
-- During an upgrade members of two versions use the same state. A later version may append
-- fields, and an earlier one may have fewer. A field that is missing or has another type gets
-- its first value, and a field that this version does not know stays. probing is 0, or the
-- time at which the permit was granted first. An earlier version writes 1.
local NAMES = {'down', 'since', 'fresh', 'quiet', 'worked', 'prober', 'probing', 'free', 'failing', 'turn', 'tried', 'others'}
local h = {down = 0, since = 0, fresh = 0, quiet = 0, worked = -1, prober = '', probing = 0, free = 0, failing = {}, turn = 0, tried = {}, others = 0}
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
h.fresh, h.worked = math.min(h.fresh, now), math.min(h.worked, now)
h.quiet, h.free = math.min(h.quiet, now + OBJECTION), math.min(h.free, now + PROBE_TIME)
h.others = math.min(h.others, now + PROBE_TIME)
if h.probing > 1 then h.probing = math.min(h.probing, now) end
local function isdown() return h.down == 1 and now - h.fresh < DOWN_TIME end
local function save()
  for i, name in ipairs(NAMES) do fields[i] = h[name] end
  redis.call('SET', KEYS[1], cmsgpack.pack(fields), 'PX', KEEP)
end
