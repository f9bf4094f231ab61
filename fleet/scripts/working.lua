-- ARGV: host. Returns 1 if the host was down.
local up = h.down
h.down, h.worked, h.failing = 0, now, {}
save()
if up == 1 then tell('u', ARGV[4]) end
return up
