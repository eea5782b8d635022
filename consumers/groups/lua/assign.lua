-- Installs an assignment, if nothing that it was computed from has changed since.
--
-- request: view (the number of the view by which its server knows topics), revision, target of {partition, member}, topics of {topic, partitions it has}, bounds of {partition, topic,
-- number, earliest, latest} for those that may have no offset yet.
-- reply: status ok | outdated.

if request.revision ~= revision or holding() then
  return finish({ status = 'outdated' })
end

local VIEW = 'view/' .. (request.log or '')
if request.log and request.view > tonumber(redis.call('HGET', STATE, VIEW) or 0) then
  redis.call('HSET', STATE, VIEW, int(request.view))
end

local first_seen = {}
for _, topic in ipairs(request.topics) do
  if redis.call('HSETNX', TOPICS, topic[1], int(topic[2])) == 1 then
    first_seen[topic[1]] = true
  end
end
-- What was set before says how many partitions the group has seen from now on.
if next(first_seen) then
  for _, partition in ipairs(redis.call('HKEYS', OFFSETS)) do
    if first_seen[string.match(partition, '^(.*)/')] then
      unsaved(partition, false)
    end
  end
end

local target = {}
for _, entry in ipairs(request.target) do
  target[entry[1]] = entry[2]
end

-- What is meant for nobody any more, or for a member that holds it already, does not move.
local moves = redis.call('HGETALL', MOVES)
for i = 1, #moves, 2 do
  if target[moves[i]] ~= moves[i + 1] then
    redis.call('HDEL', MOVES, moves[i])
  end
end

local owner_of = {}
local owners = redis.call('HGETALL', OWNERS)
for i = 1, #owners, 2 do
  local partition, owner = owners[i], owners[i + 1]
  owner_of[partition] = owner
  local part = held_of(owner).parts[partition]
  if target[partition] == owner then
    if part[2] > 0 then
      part[2] = 0
      redis.call('ZREM', REVOKED, partition)
      redis.call('HDEL', MOVES, partition)
      change(owner)
    end
  else
    redis.call('HSET', MOVES, partition, target[partition] or '')
    if part[2] == 0 then
      change(owner)
      part[2] = generation
      redis.call('ZADD', REVOKED, int(now + member_of(owner).rebalance_timeout_ms), partition)
    end
  end
end

for partition, member in pairs(target) do
  if not owner_of[partition] then
    grant(partition, member)
  end
end

-- The reset policy, applied once: by whoever is the first to hold the partition. Partitions that a topic gained after
-- the group first saw it are read from their beginning, whatever the policy. A client of Kafka, whose policy is empty
-- here, applies its own to all.
local missing = {}
for _, bound in ipairs(request.bounds) do
  missing[#missing + 1] = bound[1]
end
for i, offset in ipairs(offsets_of(missing)) do
  local bound = request.bounds[i]
  local owner = redis.call('HGET', OWNERS, bound[1])
  if offset < 0 and owner then
    local policy = member_of(owner).auto_offset_reset
    if policy ~= '' and bound[3] >= tonumber(redis.call('HGET', TOPICS, bound[2])) then
      put_offset(bound[1], 0, '')
      change(owner)
    elseif policy ~= '' and policy ~= 'error' then
      put_offset(bound[1], policy == 'latest' and bound[5] or bound[4], '')
      change(owner)
    end
  end
end

stale = false
revision = revision + 1
state_dirty = true
redis.call('HSET', STATE, 'rebalanced', int(now))
return finish({ status = 'ok' })
