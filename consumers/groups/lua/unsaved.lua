-- request: restores, keeper, all (also those that `_offsets` has).
-- reply: status ok; entries of {partition, offset, version, metadata, ms, partitions its topic had when the group first
-- read it, 0 for not yet, leader epoch, -1 for none}: those that `_offsets` is yet to have, none of a strange group.

if not request.all and is_strange() then
  return finish({ status = 'ok', entries = {} })
end
local seen = {}
local topics = redis.call('HGETALL', TOPICS)
for i = 1, #topics, 2 do
  seen[topics[i]] = tonumber(topics[i + 1])
end

local entries = {}
local key = request.all and OFFSETS or UNSAVED
for _, partition in ipairs(redis.call('HKEYS', key)) do
  local packed = redis.call('HGET', OFFSETS, partition)
  if packed then
    local entry = cmsgpack.unpack(packed)
    local topic = string.match(partition, '^(.*)/')
    entries[#entries + 1] = { partition, entry[1], entry[2], entry[3], entry[4], seen[topic] or 0, entry[5] or -1 }
  else
    saved(partition)
  end
end
return finish({ status = 'ok', entries = entries })
