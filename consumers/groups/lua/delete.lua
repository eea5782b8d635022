-- request: unused_ms (absent: whenever it was used last), for so long by Redis TIME, and since unused_since, ms by the
-- caller's clock: none that jumps ahead has a group forgotten; above (where something is kept beside Redis): the highest
-- version there.
-- reply: status ok | unknown_group | group_not_empty | used; version: what there was of the group has no higher one.

local version = math.max(request.above or 0, forgotten, now)
if not exists then
  return finish({ status = 'unknown_group', version = version })
end
if redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'group_not_empty' })
end
local last = tonumber(redis.call('HGET', STATE, 'emptied') or created_ms)
for _, packed in ipairs(redis.call('HVALS', OFFSETS)) do
  local entry = cmsgpack.unpack(packed)
  version, last = math.max(version, entry[2]), math.max(last, entry[4])
end
if request.unused_ms and last >= math.min(now - request.unused_ms, request.unused_since) then
  return finish({ status = 'used' })
end
version = math.max(version, created_ms)
local reply = finish({ status = 'ok', version = version })
forget_up_to(version)
wipe()
return reply
