-- ARGV: host, members. Returns {1 if granted, microseconds to wait}.
local free = h.free
if h.probing == 0 and h.prober == me and free > 0 then free = free + GAP end
if now < free and not (h.probing == 1 and h.prober == me) then -- else the member did not get its answer
  local last = now + math.max(GAP, tonumber(ARGV[5]) * ASK)
  h.turn = math.min(math.max(h.turn + ASK, now + math.min(free - now, GAP)), last)
  save()
  return {0, num(h.turn - now)}
end
h.prober, h.probing, h.free, h.fresh = me, 1, now + PROBE, now
save()
return {1, '0'}
