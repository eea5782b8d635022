-- What an assignment is computed from.
--
-- reply: status ok | foreign | classic; revision, members of {id, topics, topic_pattern, principal, principal_groups}, current of
-- {partition, member} (who is to hold it as things stand), unresolved: partitions that are held and have no offset yet,
-- view: the newest by which a server of this log has planned.

if is_classic then
  return finish({ status = 'classic' })
end
if is_foreign() then
  return finish({ status = 'foreign' })
end

local members = {}
local packed = redis.call('HGETALL', MEMBERS)
for i = 1, #packed, 2 do
  local member = cmsgpack.unpack(packed[i + 1])
  members[#members + 1] = {
    packed[i], member.topics, member.topic_pattern, member.principal or '', member.principal_groups or '',
  }
end

local holder, owned = {}, {}
local owners = redis.call('HGETALL', OWNERS)
for i = 1, #owners, 2 do
  holder[owners[i]] = owners[i + 1]
  owned[#owned + 1] = owners[i]
end
local moves = redis.call('HGETALL', MOVES)
for i = 1, #moves, 2 do
  if redis.call('HEXISTS', MEMBERS, moves[i + 1]) == 1 then
    holder[moves[i]] = moves[i + 1]
  end
end
local current = {}
for partition, member in pairs(holder) do
  current[#current + 1] = { partition, member }
end

local unresolved = {}
for i, offset in ipairs(offsets_of(owned)) do
  if offset < 0 then
    unresolved[#unresolved + 1] = owned[i]
  end
end
local view = request.log and tonumber(redis.call('HGET', STATE, 'view/' .. request.log) or 0)
return finish({
  status = 'ok', revision = revision, members = members, current = current, unresolved = unresolved, view = view,
})
