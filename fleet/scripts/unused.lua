-- Puts tokens back that a member was given and does not use.
if nextone then
  nextone = math.max(nextone - math.min(tokens * every, MAX_WAIT), math.min(nextone, now - full))
  keepbucket()
end
return 0
