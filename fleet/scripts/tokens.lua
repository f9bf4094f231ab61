-- The GCRA of package internal/ledger, type Tokens. The key has the time of the next
-- token. Times are in microseconds, with three decimals.
-- ARGV: microseconds between two tokens, burst, tokens wanted, and the microseconds until the
-- next token as the member knows it, or nothing. The last is for a Redis that has lost the key,
-- or that was away while the members sent their parts of the rate.
-- Returns {tokens, microseconds until the first, microseconds until the next question}.
local every, burst, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local function frac(x) return string.format('%.3f', x) end
local full = (burst - 1) * every
local first = now - full
local limit = math.max(FIRST_AHEAD, every)
local nextone = tonumber(redis.call('GET', KEYS[1]) or nil)
local known = tonumber(ARGV[7] or '')
if known then nextone = math.max(nextone or 0, now + math.min(known, limit)) end
local function keepnext()
  redis.call('SET', KEYS[1], frac(nextone), 'PX', num(math.min(math.ceil((nextone - now + full) / 1000) + 1000, MAX_WAIT / 1000)))
end
if nextone then
  -- The next token is further ahead if a member with a slower rate took one, or if the
  -- clock of Redis went back.
  local far = nextone > now + limit + every
  if far then nextone = now + limit + every end
  first = math.max(first, nextone)
  if far then keepnext() end
end
if first - now > limit then return {0, '0', frac(first - now - limit / 2)} end
local n = 1
local room = MORE_AHEAD - (first - now)
if room > 0 and want > 1 then n = math.min(want, math.max(1, 1 + math.floor(room / every))) end
nextone = first + n * every
keepnext()
return {n, frac(first - now), '0'}
