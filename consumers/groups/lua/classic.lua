-- A group whose members share out its partitions among themselves (Kafka's classic protocol): stands between the prelude
-- and the transitions of such a group.
--
-- Its phases: `empty`; `preparing`, in which members join, until all have or the deadline passes; `completing`, in which
-- they have a generation, and wait for what the leader says; `stable`. arrived are the members whose join, and then whose
-- sync, has come. A member that has not come by the deadline is gone; one with an instance may miss a join.
--
-- protocols has of each member what it sent with each protocol, assignments what the leader gave it, {bytes, partitions
-- of {topic, number}}. Bytes are text here, a character each.

local about = redis.call('HMGET', STATE, 'protocol_type', 'protocol', 'leader', 'extends')
local protocol_type, protocol, leader = about[1] or '', about[2] or '', about[3] or ''
-- Until when the first rebalance of a group may wait for more members; 0 in any other.
local extends = tonumber(about[4] or 0)
local phase_dirty = false
local completed = false
local members_cache

-- One member comes, 1, or goes, -1.
local function count(summary, fields, sign)
  summary.of = summary.of + sign
  summary.bytes = summary.bytes + sign * (fields.metadata_bytes or 0)
  for _, name in ipairs(fields.protocols) do
    summary.named[name] = (summary.named[name] or 0) + sign
  end
end

-- Every member, {id, fields}, by its id.
local function members_of_group()
  if members_cache then
    return members_cache
  end
  local members = {}
  local packed = redis.call('HGETALL', MEMBERS)
  for i = 1, #packed, 2 do
    members[#members + 1] = { packed[i], cmsgpack.unpack(packed[i + 1]) }
  end
  table.sort(members, function(a, b)
    return a[1] < b[1]
  end)
  members_cache = members
  return members
end

-- What all members say together, so that who joins is compared with that and not with each: how many there are, `of`, the
-- `bytes` that they sent, and by how many each protocol was named. It is counted anew in each rebalance, and where it is of
-- another number of members than there are.
local function summary_of_group()
  local packed = redis.call('HGET', STATE, 'summary')
  local summary = packed and cmsgpack.unpack(packed)
  if summary and summary.of == redis.call('HLEN', MEMBERS) then
    return summary
  end
  summary = { of = 0, bytes = 0, named = {} }
  for _, entry in ipairs(members_of_group()) do
    count(summary, entry[2], 1)
  end
  return summary
end

local function put_summary(summary)
  redis.call('HSET', STATE, 'summary', cmsgpack.pack(summary))
end

local function put_member(id, fields)
  redis.call('HSET', MEMBERS, id, cmsgpack.pack(fields))
  members_cache = nil
end

local function longest_rebalance()
  local longest = 0
  for _, entry in ipairs(members_of_group()) do
    longest = math.max(longest, entry[2].rebalance_timeout_ms)
  end
  return longest
end

local function begin_phase(name, until_ms)
  phase, deadline, phase_dirty = name, until_ms, true
end

local function arrive(member)
  redis.call('SADD', ARRIVED, member)
end

local function has_arrived(member)
  return redis.call('SISMEMBER', ARRIVED, member) == 1
end

local function all_arrived()
  return redis.call('SCARD', ARRIVED) == redis.call('ZCARD', SESSIONS)
end

-- Every member that waits is to come and hear what is new.
local function wake_all()
  raise_generation()
  for _, member in ipairs(redis.call('HKEYS', MEMBERS)) do
    changed[member] = true
  end
end

-- Whether nobody is left.
local function is_emptied()
  if redis.call('ZCARD', SESSIONS) > 0 then
    return false
  end
  redis.call('DEL', PROTOCOLS, ASSIGNMENTS, ARRIVED)
  leader, protocol, extends = '', '', 0
  begin_phase('empty', 0)
  return true
end

local function expel(member)
  remove(member)
  members_cache = nil
  redis.call('HDEL', PROTOCOLS, member)
  redis.call('HDEL', ASSIGNMENTS, member)
  redis.call('SREM', ARRIVED, member)
  if leader == member then
    leader, phase_dirty = '', true
  end
end

-- The protocols that all of `members` have: names as keys.
local function common_protocols(members)
  local counts, common = {}, {}
  for _, entry in ipairs(members) do
    for _, name in ipairs(entry[2].protocols) do
      counts[name] = (counts[name] or 0) + 1
      common[name] = counts[name] == #members or nil
    end
  end
  return common
end

-- The protocol that most members put before the others that all have.
local function chosen_protocol()
  local members = members_of_group()
  local common, votes, chosen = common_protocols(members), {}, ''
  for _, entry in ipairs(members) do
    for _, name in ipairs(entry[2].protocols) do
      if common[name] then
        votes[name] = (votes[name] or 0) + 1
        break
      end
    end
  end
  for name, count in pairs(votes) do
    if chosen == '' or count > votes[chosen] or (count == votes[chosen] and name < chosen) then
      chosen = name
    end
  end
  return chosen
end

-- All are to join anew. The first rebalance of a group waits for `delay_ms`, so that members that start together share one.
local function prepare(delay_ms)
  if phase == 'preparing' then
    return
  end
  redis.call('DEL', ARRIVED)
  local longest_ms = longest_rebalance()
  local waits = phase == 'empty' and (delay_ms or 0) > 0
  extends = waits and now + longest_ms or 0
  begin_phase('preparing', now + (waits and math.min(delay_ms, longest_ms) or longest_ms))
  wake_all()
end

-- Who has joined gets a generation.
local function complete()
  for _, entry in ipairs(members_of_group()) do
    if entry[2].instance_id == '' and not has_arrived(entry[1]) then
      expel(entry[1])
      evicted.rebalance = evicted.rebalance + 1
    end
  end
  if is_emptied() then
    return
  end
  local longest_ms = longest_rebalance()
  if redis.call('SCARD', ARRIVED) == 0 then
    -- Only members with an instance are left, and all are away.
    begin_phase('preparing', now + longest_ms)
    return
  end
  if not has_arrived(leader) then
    local since
    for _, entry in ipairs(members_of_group()) do
      if has_arrived(entry[1]) and (not since or entry[2].joined_ms < since) then
        leader, since = entry[1], entry[2].joined_ms
      end
    end
  end
  protocol = chosen_protocol()
  redis.call('HDEL', STATE, 'summary')
  wake_all()
  joined_generation, extends, completed = generation, 0, true
  for _, entry in ipairs(members_of_group()) do
    if has_arrived(entry[1]) then
      renew(entry[1], entry[2].session_timeout_ms)
    end
  end
  redis.call('DEL', ASSIGNMENTS, ARRIVED)
  begin_phase('completing', now + longest_ms)
end

-- A rebalance that waits for nobody any more goes on.
local function advance()
  if phase == 'preparing' and extends == 0 and all_arrived() then
    complete()
  end
end

-- Somebody is gone, and the others share out anew.
local function rebalance()
  if not is_emptied() then
    prepare()
    advance()
  end
end

-- Time passes: a hold ends, sessions and the patience with those that do not come run out.
local function pass()
  if not is_classic or holding() then
    return
  end
  if hold > 0 then
    hold = 0
    state_dirty = true
  end
  local ended = redis.call('ZRANGEBYSCORE', SESSIONS, '-inf', int(now))
  for _, member in ipairs(ended) do
    expel(member)
    evicted.session = evicted.session + 1
  end
  if #ended > 0 then
    rebalance()
  end
  if deadline == 0 or now < deadline then
    return
  end
  if phase == 'preparing' then
    complete()
    return
  end
  for _, entry in ipairs(members_of_group()) do
    if not has_arrived(entry[1]) then
      expel(entry[1])
      evicted.rebalance = evicted.rebalance + 1
    end
  end
  rebalance()
end

-- Writes the phase too, where there is a new one; says whether a rebalance has ended.
local function conclude(reply)
  if is_classic and phase_dirty then
    state_dirty = true
    redis.call('HSET', STATE, 'type', 'classic', 'phase', phase, 'joined', int(joined_generation), 'deadline',
      int(deadline), 'extends', int(extends), 'protocol_type', protocol_type, 'protocol', protocol, 'leader', leader)
  end
  reply.rebalanced = completed
  return finish(reply)
end
