-- ARGV: host. Returns 1 if the host was down, or if this was its probe.
local probe = h.probing > 0 and h.prober == me
local up = isdown() or probe
if isdown() and not probe then h.quiet = now + OBJECTION end
h.failing, h.down, h.worked = {}, 0, now
if up then h.probing, h.free, h.turn, h.tried, h.others = 0, now, now, {}, 0 end
save()
if up then
  tell('u', ARGV[4])
  return 1
end
return 0
