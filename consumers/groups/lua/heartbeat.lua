-- Joins, or renews a session; applies the commits of a poll; takes note of what the member let go.
--
-- request: member, generation (of the last reply, 0 to join), join (all fields of a new member; absent where it may
-- not join), fields (those that were sent), instance_id (absent: not sent), owned (absent: unchanged), poll (what was
-- revoked by `generation` counts as let go), commits, principal_groups (beside principal: those that its token names),
-- rejoins (with join: also where the member is there, which begins anew, or its id left, expired or was fenced).
-- reply: status ok | fenced_member | fenced_instance | unknown_member | other_principal | other_instance | foreign |
-- classic | fenced_commits;
-- assignment of {partition, offset} (absent: unchanged since `generation`) and delivered of {partition, offset} for
-- those with records that were handed out and never committed, resting of {partition, ms} for those that have a record
-- whose next attempt is later, releasing (something revoked is still held), the member's reset policy and timeout.

local DECIDE = { topics = true, topic_pattern = true, principal = true, principal_groups = true }
local id, sent = request.member, request.generation

-- A new member of an instance that has one is in its place: what it holds goes over, and moves to nobody else.
local function take_over(former, joining)
  local was = member_of(former)
  local parts = held_of(former).parts
  forget_member(former, true)
  evicted.instance = 1
  for partition, part in pairs(parts) do
    if part[2] > 0 then
      -- It had to let go of this one, and nobody is left who reads it.
      redis.call('HDEL', OWNERS, partition)
      redis.call('ZREM', REVOKED, partition)
    else
      redis.call('HSET', OWNERS, partition, id)
      held_of(id).parts[partition] = { generation, 0 }
    end
  end
  local moves = redis.call('HGETALL', MOVES)
  for i = 1, #moves, 2 do
    if moves[i + 1] == former then
      redis.call('HSET', MOVES, moves[i], id)
    end
  end
  local same = was.topics == joining.topics and was.topic_pattern == joining.topic_pattern
  if same and was.principal == joining.principal and was.principal_groups == joining.principal_groups then
    revision = revision + 1
    state_dirty = true
  else
    outdate()
  end
  settle()
end

local refusal = refusal_of(id)
if refusal == 'fenced_member' and request.rejoins then
  redis.call('ZREM', REFUSED, id)
elseif refusal then
  return finish({ status = refusal })
end

if is_foreign() then
  return finish({ status = 'foreign' })
end
if is_classic and redis.call('ZCARD', SESSIONS) > 0 then
  return finish({ status = 'classic' })
end

local member = member_of(id)
if not member and not request.join then
  return finish({ status = 'unknown_member' })
end
local instance = member and '' or request.join.instance_id
local replaced = instance ~= '' and redis.call('HGET', INSTANCES, instance)
if is_anothers(replaced or id) then
  return finish({ status = 'other_principal' })
end
if member and request.instance_id and request.instance_id ~= member.instance_id then
  return finish({ status = 'other_instance' })
end

if request.commits then
  local fenced = fenced_commits(id, sent, request.commits)
  if #fenced > 0 then
    return finish({ status = 'fenced_commits', partitions = fenced })
  end
  put_offsets(request.commits)
end

local joined = not member
if joined then
  create()
  if is_classic then
    is_classic, deadline = false, 0
    redis.call('HDEL', STATE, 'type', 'phase', 'joined', 'deadline', 'extends', 'protocol_type', 'protocol', 'leader')
  end
  if request.log then
    redis.call('HSET', STATE, 'log', request.log)
  end
  member = request.join
  member.seen, member.joined_ms = 0, now
  redis.call('HSET', MEMBERS, id, cmsgpack.pack(member))
  change(id)
  if instance ~= '' then
    redis.call('HSET', INSTANCES, instance, id)
  end
  if replaced then
    take_over(replaced, member)
  else
    outdate()
  end
end

if request.rejoins and not joined then
  -- It has nothing any more of what it was to let go of, and hears anew what it has.
  member.seen = 0
  redis.call('HSET', MEMBERS, id, cmsgpack.pack(member))
  local released = {}
  for partition, part in pairs(held_of(id).parts) do
    if part[2] > 0 then
      released[#released + 1] = partition
    end
  end
  for _, partition in ipairs(released) do
    let_go(partition, id)
  end
  change(id)
  settle()
end

-- A heartbeat older than one that arrived before it changes nothing. One of a generation that was never stored here
-- comes from what Redis lost: it shows that the member lives, and nothing else.
local delayed = sent < member.seen
local ahead = is_lost(sent)
local held = held_of(id)

if not delayed then
  local dirty, decides = false, false
  if sent > member.seen and not ahead then
    member.seen = sent
    dirty = true
  end
  local fields = request.fields
  if request.principal and ((member.principal or '') == '' or member.principal == request.principal) then
    fields.principal, fields.principal_groups = request.principal, request.principal_groups
  end
  for name, value in pairs(fields) do
    if member[name] ~= value then
      decides = decides or DECIDE[name]
      member[name] = value
      dirty = true
    end
  end
  if decides then
    outdate()
  end
  if dirty then
    redis.call('HSET', MEMBERS, id, cmsgpack.pack(member))
  end
  renew(id, member.session_timeout_ms)
end

if ahead then
  outrun(sent)
  change(id)
elseif not delayed and (request.owned or request.poll) then
  local owned = {}
  for _, partition in ipairs(request.owned or {}) do
    owned[partition] = true
  end
  local released = {}
  for partition, part in pairs(held.parts) do
    if part[2] > 0 and part[2] <= sent and not owned[partition] then
      released[#released + 1] = partition
    end
  end
  for _, partition in ipairs(released) do
    let_go(partition, id)
  end
  if #released > 0 then
    settle()
  end
end

local reply = {
  status = 'ok',
  releasing = false,
  auto_offset_reset = member.auto_offset_reset,
  session_timeout_ms = member.session_timeout_ms,
}
local partitions = {}
for partition, part in pairs(held.parts) do
  if part[2] == 0 then
    partitions[#partitions + 1] = partition
  else
    reply.releasing = true
  end
end
if request.poll or joined or ahead or delayed or changed[id] or sent < held.changed then
  reply.assignment = {}
  for i, offset in ipairs(offsets_of(partitions)) do
    reply.assignment[i] = { partitions[i], offset }
  end
  reply.delivered, reply.resting = {}, {}
  for _, partition in ipairs(partitions) do
    local attempts, rests_until = attempts_of(partition), 0
    if attempts.to > 0 then
      reply.delivered[#reply.delivered + 1] = { partition, attempts.to }
    end
    for _, entry in ipairs(attempts.open) do
      rests_until = math.max(rests_until, entry[5] or 0)
    end
    if rests_until > now then
      reply.resting[#reply.resting + 1] = { partition, rests_until - now }
    end
  end
end
return finish(reply)
