-- reply: status ok | unknown_group; state, members of {id, client_id, topics, topic_pattern, auto_offset_reset,
-- {partition ...}, instance_id, when it joined, client_host}, classic_group (of a classic group) of phase, protocol_type,
-- protocol, generation (that of its members) and members of {id, partitions of {topic, number}, metadata, assignment},
-- moving of {partition, member or ""}, offsets of {partition, offset, metadata, ms}, rebalanced_ms: when an assignment
-- was last installed. 0 where that is not known.

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
    member.instance_id or '', member.joined_ms or 0, member.client_host or '',
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

local function classic_members()
  local described = {}
  for i = 1, #packed, 2 do
    local id = packed[i]
    local metadata = cmsgpack.unpack(redis.call('HGET', PROTOCOLS, id))[protocol] or ''
    local given = redis.call('HGET', ASSIGNMENTS, id)
    local assignment = given and cmsgpack.unpack(given) or { '', {} }
    described[#described + 1] = { id, assignment[2], metadata, assignment[1] }
  end
  return described
end

local classic
if is_classic then
  classic = {
    phase = phase, protocol_type = protocol_type, protocol = protocol, generation = joined_generation,
    members = classic_members(),
  }
end

local state = 'stable'
if #members == 0 then
  state = 'empty'
elseif is_classic then
  state = phase == 'stable' and 'stable' or 'rebalancing'
elseif stale or #moving > 0 then
  state = 'rebalancing'
end
return finish({
  status = 'ok', state = state, classic_group = classic, members = members, moving = moving, offsets = offsets,
  rebalanced_ms = tonumber(redis.call('HGET', STATE, 'rebalanced') or 0),
})
