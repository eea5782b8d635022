-- What the group has committed.
--
-- request: partitions (absent: of all that there are), member and generation (given: only to a member that there is, and
-- that knows no generation above the group's).
-- reply: status ok | unknown_member | fenced_member; offsets of {partition, offset, metadata, ms, leader epoch, -1 for
-- none} where there is one.

if request.member then
  if redis.call('HEXISTS', MEMBERS, request.member) == 0 then
    return finish({ status = 'unknown_member' })
  end
  if is_lost(request.generation) then
    return finish({ status = 'fenced_member' })
  end
end

local partitions = request.partitions or redis.call('HKEYS', OFFSETS)
local offsets = {}
for first = 1, #partitions, FIELDS_PER_CALL do
  local last = math.min(first + FIELDS_PER_CALL - 1, #partitions)
  for i, packed in ipairs(redis.call('HMGET', OFFSETS, unpack(partitions, first, last))) do
    if packed then
      local entry = cmsgpack.unpack(packed)
      offsets[#offsets + 1] = { partitions[first + i - 1], entry[1], entry[3], entry[4], entry[5] or -1 }
    end
  end
end
return finish({ status = 'ok', offsets = offsets })
