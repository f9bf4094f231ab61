-- ARGV, after those of the bucket: for how many microseconds the member got no answer, how many
-- tokens it used by itself meanwhile, and the microseconds until the next token as the member
-- knew it before, or nothing. That is for a Redis that has lost the key. The last is the time after
-- which nobody waits for the answer, or nothing.
-- Returns {tokens, microseconds until the first, microseconds until the next question}.
local silence, spent, due, deadline = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
if deadline and now > deadline then return {-1, '0', '0'} end
if nextone and debt > 0 then debt = math.max(0, debt - math.max(0, now - nextone - full)) end
local gap = silence
if nextone then gap = math.min(gap, now - asked) end
if due then nextone = math.max(nextone or -math.huge, now + math.min(due, limit)) end
if 2 * gap > silence then
  local taken = gap
  if nextone then
    taken = math.min(gap, math.max(0, now - nextone))
    nextone = nextone + taken
  end
  debt, resumed = -taken, now
end
if silence > 0 and now - silence > resumed then debt = math.max(debt, 0) end
debt = debt + math.min(spent * every, MAX_WAIT)
if debt > 0 then
  local from = math.max(now - full, nextone or -math.huge)
  debt = math.min(debt, math.max(0, now - from) + limit) -- nobody stops the others for longer
  local paid = math.min(debt, math.max(0, now + limit + every - from))
  nextone, debt = from + paid, debt - paid
end
asked = now
local ROUNDING = 0.001 -- of the times that are kept
local first = now - full
if nextone then
  -- The next token is further ahead if a member with a slower rate took one, or if the
  -- clock of Redis went back.
  nextone = math.min(nextone, now + limit + every)
  first = math.max(first, nextone)
end
if first - now > limit + ROUNDING then
  keepbucket()
  return {0, '0', frac(first - now - limit / 2)}
end
local n = 1
local room = MORE_AHEAD - (first - now)
if room > 0 and tokens > 1 then n = math.min(tokens, math.max(1, 1 + math.floor((room + ROUNDING) / every))) end
nextone = first + n * every
keepbucket()
return {n, frac(first - now), '0'}
