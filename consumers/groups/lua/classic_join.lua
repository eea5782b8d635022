-- Joins a classic group, for the first time or anew.
--
-- request: member; fresh: its caller had no id, and got this one; promised: it may be one that was given out before,
-- and of which nothing is known here; join: all fields of the member; protocol_type;
-- metadata: what it sent with each protocol, by name; delay_ms: for how long a first rebalance waits for more;
-- members_max; metadata_bytes_max: what all members may send; skips: it knows that a leader may have nothing to share out. Or again: its join is known, and still waited
-- for.
-- reply: status waiting | ok | fenced_member | fenced_instance | unknown_member | other_principal | other_type | foreign |
-- inconsistent | full. With waiting: session_timeout_ms. With ok: joined (its generation), protocol_type, protocol, leader, skip (it is the leader and shares
-- out nothing), and to the leader members of {id, instance, metadata}.

local id = request.member
pass()

local function told(replaced)
  local reply = {
    status = 'ok', joined = joined_generation, protocol_type = protocol_type, protocol = protocol, leader = leader,
    skip = false, members = {},
  }
  if leader ~= id then
    return conclude(reply)
  end
  if replaced and not request.skips then
    -- It would share out anew what stays as it is.
    reply.leader = replaced
    return conclude(reply)
  end
  reply.skip = replaced and true or false
  local sent = {}
  local packed = redis.call('HGETALL', PROTOCOLS)
  for i = 1, #packed, 2 do
    sent[packed[i]] = packed[i + 1]
  end
  for _, entry in ipairs(members_of_group()) do
    local metadata = cmsgpack.unpack(sent[entry[1]])
    reply.members[#reply.members + 1] = { entry[1], entry[2].instance_id, metadata[protocol] }
  end
  return conclude(reply)
end

local function waited_for()
  advance()
  if phase == 'preparing' then
    return conclude({ status = 'waiting', session_timeout_ms = member_of(id).session_timeout_ms })
  end
  return told()
end

local refusal = not request.fresh and refusal_of(id)
if refusal then
  local has_instance = request.join and request.join.instance_id ~= ''
  return conclude({ status = has_instance and refusal or 'fenced_member' })
end
local member = member_of(id)
if request.again then
  if not is_classic or not member then
    return conclude({ status = 'unknown_member' })
  end
  renew(id, member.session_timeout_ms)
  if phase == 'preparing' then
    arrive(id)
  end
  return waited_for()
end

if is_foreign() then
  return conclude({ status = 'foreign' })
end
if not is_classic and redis.call('ZCARD', SESSIONS) > 0 then
  return conclude({ status = 'other_type' })
end
local joining = request.join
local former = joining.instance_id ~= '' and redis.call('HGET', INSTANCES, joining.instance_id)
if is_anothers(former or id) then
  return conclude({ status = 'other_principal' })
end
if not request.fresh and joining.instance_id ~= '' and former ~= id then
  return conclude({ status = former and refusal_for_instance(id) or 'unknown_member' })
end
if not member and not request.fresh and not request.promised then
  return conclude({ status = 'unknown_member' })
end

-- Of the others, and then with it.
local summary = summary_of_group()
if member then
  count(summary, member, -1)
end
local replaces = former and former ~= id and former
local replaced_member = replaces and member_of(replaces)
if replaced_member then
  count(summary, replaced_member, -1)
end
local others = summary.of
count(summary, joining, 1)
local function is_consistent()
  for _, name in ipairs(joining.protocols) do
    if summary.named[name] == summary.of then
      return request.protocol_type == protocol_type
    end
  end
  return false
end
if others > 0 then
  if not is_consistent() then
    return conclude({ status = 'inconsistent' })
  end
  if others >= request.members_max or summary.bytes > request.metadata_bytes_max then
    return conclude({ status = 'full' })
  end
end

-- Whether `was` sent the same with each protocol, in the same order.
local function is_same(was)
  local sent = cmsgpack.unpack(redis.call('HGET', PROTOCOLS, id) or cmsgpack.pack({}))
  for i = 1, math.max(#was.protocols, #joining.protocols) do
    local name = joining.protocols[i]
    if was.protocols[i] ~= name or sent[name] ~= request.metadata[name] then
      return false
    end
  end
  return true
end

-- A new member of an instance that has one is in its place.
local function take_over()
  forget_member(former, true)
  members_cache = nil
  evicted.instance = 1
  redis.call('HDEL', PROTOCOLS, former)
  redis.call('SREM', ARRIVED, former)
  local assigned = redis.call('HGET', ASSIGNMENTS, former)
  if assigned then
    redis.call('HDEL', ASSIGNMENTS, former)
    redis.call('HSET', ASSIGNMENTS, id, assigned)
  end
  if leader == former then
    leader, phase_dirty = id, true
  end
end

create()
if request.log then
  redis.call('HSET', STATE, 'log', request.log)
end
if not is_classic then
  is_classic = true
  begin_phase('empty', 0)
end
local same = member and is_same(member) or replaces and replaced_member.topics == joining.topics
joining.joined_ms = member and member.joined_ms or now
put_member(id, joining)
put_summary(summary)
redis.call('HSET', PROTOCOLS, id, cmsgpack.pack(request.metadata))
renew(id, joining.session_timeout_ms)
if joining.instance_id ~= '' then
  redis.call('HSET', INSTANCES, joining.instance_id, id)
end
if replaces then
  take_over()
end
if others == 0 and protocol_type ~= request.protocol_type then
  protocol_type, phase_dirty = request.protocol_type, true
end

if phase == 'preparing' then
  if extends > 0 and not member then
    begin_phase('preparing', math.max(deadline, math.min(now + request.delay_ms, extends)))
  end
elseif replaces then
  if phase == 'stable' and same and chosen_protocol() == protocol then
    return told(replaces)
  end
elseif member and same and not (phase == 'stable' and leader == id) then
  return told()
end
prepare(request.delay_ms)
arrive(id)
return waited_for()
