-- reply: status ok | unknown_group; state, members of {id, client_id, topics, topic_pattern, auto_offset_reset,
-- {partition ...}, instance_id}, moving of {partition, member or ""}, offsets of {partition, offset, metadata, ms}.

if not exists then
  return finish({ status = 'unknown_group' })
end

local members = {}
local packed = redis.call('HGETALL', MEMBERS)
for i = 1, #packed, 2 do
  local member = cmsgpack.unpack(packed[i + 1])
  local partitions = {}
  for partition in pairs(held_of(packed[i]).parts) do
    partitions[#partitions + 1] = partition
  end
  members[#members + 1] = {
    packed[i], member.client_id, member.topics, member.topic_pattern, member.auto_offset_reset, partitions,
    member.instance_id or '',
  }
end

local moving = {}
local moves = redis.call('HGETALL', MOVES)
for i = 1, #moves, 2 do
  moving[#moving + 1] = { moves[i], moves[i + 1] }
end

local offsets = {}
local committed = redis.call('HGETALL', OFFSETS)
for i = 1, #committed, 2 do
  local entry = cmsgpack.unpack(committed[i + 1])
  offsets[#offsets + 1] = { committed[i], entry[1], entry[3], entry[4] }
end

local state = 'stable'
if #members == 0 then
  state = 'empty'
elseif stale or #moving > 0 then
  state = 'rebalancing'
end
return finish({ status = 'ok', state = state, members = members, moving = moving, offsets = offsets })
