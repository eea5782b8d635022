-- The state of one group and the steps that its transitions are made of; stands before every script.
--
-- KEYS are a group's keys in the order of `GROUP_PARTS` (infra/redis/keys.py), ARGV[1] is the request and the reply one
-- MessagePack value. Times are milliseconds of Redis TIME. A partition is one string: "{topic}/{topic id}/{partition}".
--
-- owners says who holds a partition: one member or nobody, so never two. held is the same by member, each partition
-- with {since which generation, in which generation it was revoked, 0 for not}, and the generation in which what the
-- member may read last changed.
--
-- request.principal names who speaks for a member, which is his from then on; absent where nobody says who he is.
-- request.for_others says that he may speak for members of others too.
--
-- request.heard is the highest generation, of any group, that the caller has heard of.
--
-- request.log names the log whose `_offsets` has this group's offsets too; absent where nothing is kept beside Redis.
-- request.new says that there it is known to have none. request.keeper is the epoch of the newest keeper of `_offsets`
-- that the caller has heard of, as text of twenty digits; request.restores names the log where the caller is that keeper.
--
-- Members of a classic group share out its partitions among themselves: nothing is planned for it, owners and held are
-- empty, and time passes for it by its own transitions and by `sweep` (classic.lua). It stays one while it has members.

local STATE, MEMBERS, SESSIONS, HELD, OWNERS, MOVES, REVOKED, TOPICS, OFFSETS, REFUSED, INSTANCES, ATTEMPTS, UNSAVED,
  PROTOCOLS, ASSIGNMENTS, ARRIVED = unpack(KEYS)
local REFUSED_MS = 86400000
-- So many ids are refused at once, those that were last: anybody may leave under any id.
local REFUSED_MAX = 10000
local SECOND_MS = 1000
-- A Redis may have issued so many generations in the last second, which it lost.
local LOST_MAX = 1024
-- Restarts that are so far apart, and no more of them, go on at different generations.
local RESTART_MS, RESTARTS = 250, 64
-- No group runs ahead of the time as far as this: a generation above it was never issued.
local AHEAD_MS_MAX = 31536000000
local FIELDS_PER_CALL = 1000

local request = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local stored = redis.call('HMGET', STATE, 'generation', 'revision', 'stale', 'run_id', 'hold', 'created', 'lost',
  'regained', 'forgotten', 'clock')
local generation_before = tonumber(stored[1] or 0)
local generation = generation_before
local revision = tonumber(stored[2] or 0)
local stale = stored[3] == '1'
local hold = tonumber(stored[5] or 0)
-- Generations between these two were issued by a Redis that has lost them since, if by any.
local lost = tonumber(stored[7] or 0)
local regained = tonumber(stored[8] or 0)
local created_ms = tonumber(stored[6] or 0)
local exists = stored[6] ~= false
local created = false
-- Up to which version offsets were forgotten, or the group as a whole: what comes after that is above it.
local forgotten = tonumber(stored[9] or 0)
local state_dirty = false
-- When a time that is to come was last written down.
local clock = tonumber(stored[10] or 0)
local clock_dirty = false
-- Of a classic group: how far a rebalance is, the generation that its members have, and when the phase ends (0: never).
local of_classic = redis.call('HMGET', STATE, 'type', 'phase', 'joined', 'deadline')
local is_classic = of_classic[1] == 'classic'
local phase = is_classic and of_classic[2] or 'empty'
local joined_generation = is_classic and tonumber(of_classic[3]) or 0
local deadline = is_classic and tonumber(of_classic[4]) or 0

local held_cache, held_dirty, changed = {}, {}, {}
local evicted = { session = 0, rebalance = 0, instance = 0 }

local RESTORED = 'restored/' .. (request.log or '')
local KEEPER = 'keeper/' .. (request.log or request.restores or '')
local keeper = redis.call('HGET', STATE, KEEPER) or ''

local function int(number)
  return string.format('%.0f', number)
end

local function whole_second(ms)
  return ms - ms % SECOND_MS
end

-- A new generation, at most one a transition: above every earlier one, also where Redis was emptied. It is a time in
-- whole seconds: what clients of Kafka have in its place is no longer than 31 bits.
local function raise_generation()
  if generation == generation_before then
    local known = generation_before > 0 and generation_before or request.heard or 0
    generation = math.max(whole_second(known) + SECOND_MS, whole_second(now))
    state_dirty = true
  end
end

-- Whether a generation that a member names was issued by a Redis that has lost it since.
local function is_lost(sent)
  return sent > generation_before or (lost < sent and sent < regained)
end

-- After a restart generations go on above any that were issued and lost. Where one restart follows another, and what the
-- first one had issued is lost too, the places differ.
local function regain()
  local seconds = math.max(generation_before, now) / SECOND_MS + LOST_MAX
  local block = math.ceil(seconds / LOST_MAX)
  block = block + (math.floor(now / RESTART_MS) - block) % RESTARTS
  generation = math.max(generation, block * LOST_MAX * SECOND_MS)
  lost = now < hold and lost or generation_before
  regained = generation
  state_dirty = true
end

-- A member was told of a generation above the stored one: it would take none below it for news.
local function outrun(sent)
  if generation_before < sent and sent < now + AHEAD_MS_MAX then
    generation = math.max(generation, whole_second(sent) + (LOST_MAX + 1) * SECOND_MS)
    lost = now < hold and lost or generation_before
    regained = generation
    state_dirty = true
  end
end

-- What the assignment is computed from has changed.
local function outdate()
  stale = true
  revision = revision + 1
  state_dirty = true
end

local function held_of(member)
  local held = held_cache[member]
  if not held then
    local packed = redis.call('HGET', HELD, member)
    held = packed and cmsgpack.unpack(packed) or { changed = 0, parts = {} }
    held_cache[member] = held
  end
  return held
end

-- Whether the group's members read another log than this call's server has.
local function is_foreign()
  local log = redis.call('HGET', STATE, 'log')
  return request.log and log and log ~= request.log and redis.call('ZCARD', SESSIONS) > 0
end

-- Whether another log had the group, and the one that restores or saves it never did.
local function is_strange()
  if redis.call('HEXISTS', STATE, 'restored/' .. request.restores) == 1 then
    return false
  end
  for _, field in ipairs(redis.call('HKEYS', STATE)) do
    if string.match(field, '^restored/') then
      return true
    end
  end
  return false
end

-- What `member` may read has changed, in this generation.
local function change(member)
  raise_generation()
  held_dirty[member] = true
  changed[member] = true
end

local function member_of(member)
  local packed = redis.call('HGET', MEMBERS, member)
  return packed and cmsgpack.unpack(packed)
end

-- Whether `member` is another principal's than the one that speaks for it, who may not.
local function is_anothers(member)
  if not request.principal or request.for_others then
    return false
  end
  local principal = (member_of(member) or {}).principal or ''
  return principal ~= '' and principal ~= request.principal
end

-- Why the member is refused, if it is. Half a millisecond says that another took over its instance.
local function refusal_of(member)
  local until_ms = tonumber(redis.call('ZSCORE', REFUSED, member) or 0)
  if until_ms <= now then
    return nil
  end
  return until_ms % 1 > 0 and 'fenced_instance' or 'fenced_member'
end

local function refuse(member, was_replaced)
  redis.call('ZREMRANGEBYSCORE', REFUSED, '-inf', int(now))
  redis.call('ZADD', REFUSED, int(now + REFUSED_MS) .. (was_replaced and '.5' or ''), member)
  redis.call('ZREMRANGEBYRANK', REFUSED, 0, -REFUSED_MAX - 1)
  redis.call('PEXPIRE', REFUSED, int(REFUSED_MS + 1))
end

local function create()
  if not exists then
    redis.call('PERSIST', STATE)
    redis.call('HSET', STATE, 'created', int(math.max(now, forgotten + 1)))
    if request.log then
      keeper = request.keeper > keeper and request.keeper or keeper
      redis.call('HSET', STATE, RESTORED, stored[4], KEEPER, keeper)
    end
    exists = true
    created = true
    state_dirty = true
  end
end

local function grant(partition, member)
  redis.call('HSET', OWNERS, partition, member)
  redis.call('HDEL', MOVES, partition)
  change(member)
  held_of(member).parts[partition] = { generation, 0 }
end

local function let_go(partition, member)
  redis.call('HDEL', OWNERS, partition)
  redis.call('ZREM', REVOKED, partition)
  held_of(member).parts[partition] = nil
  held_dirty[member] = true
end

local function forget_member(member, was_replaced)
  held_cache[member], held_dirty[member] = nil, nil
  redis.call('HDEL', HELD, member)
  redis.call('HDEL', MEMBERS, member)
  redis.call('ZREM', SESSIONS, member)
  refuse(member, was_replaced)
  raise_generation()
  changed[member] = true
end

-- The member is gone, and its id with it.
local function remove(member)
  for partition in pairs(held_of(member).parts) do
    redis.call('HDEL', OWNERS, partition)
    redis.call('ZREM', REVOKED, partition)
  end
  local instance = (member_of(member) or {}).instance_id or ''
  if instance ~= '' and redis.call('HGET', INSTANCES, instance) == member then
    redis.call('HDEL', INSTANCES, instance)
  end
  forget_member(member)
  if not is_classic then
    outdate()
  end
  if redis.call('ZCARD', SESSIONS) == 0 then
    redis.call('DEL', MOVES)
    redis.call('HSET', STATE, 'emptied', int(now))
    stale = false
    hold = 0
  end
end

-- The member is heard of: its session begins anew.
local function renew(member, session_timeout_ms)
  redis.call('ZADD', SESSIONS, int(now + session_timeout_ms), member)
  clock_dirty = true
end

local function set_back(key, ms)
  local entries = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #entries, 2 do
    redis.call('ZADD', key, int(tonumber(entries[i + 1]) - ms), entries[i])
  end
end

-- The clock of Redis was set back: what was to come by it comes that much sooner.
local function notice_clock()
  local back = clock - now
  if back < SECOND_MS then
    return
  end
  set_back(SESSIONS, back)
  set_back(REVOKED, back)
  local packed = redis.call('HGETALL', ATTEMPTS)
  for i = 1, #packed, 2 do
    local attempts = cmsgpack.unpack(packed[i + 1])
    for _, entry in ipairs(attempts.open) do
      entry[5] = entry[5] and entry[5] - back
    end
    redis.call('HSET', ATTEMPTS, packed[i], cmsgpack.pack(attempts))
  end
  hold = math.max(hold - back, 0)
  deadline = math.max(deadline - back, 0)
  local extends = math.max(tonumber(redis.call('HGET', STATE, 'extends') or 0) - back, 0)
  redis.call('HSET', STATE, 'clock', int(now), 'hold', int(hold))
  if is_classic then
    redis.call('HSET', STATE, 'deadline', int(deadline), 'extends', int(extends))
  end
end

-- A Redis that was restarted may have lost its last second: generations go on above any that it issued then, nobody
-- expires and nothing moves until every member had one session timeout to show what it knows.
local function notice_restart()
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  if stored[4] == run_id then
    return
  end
  if stored[4] then
    local longest = 0
    for _, packed in ipairs(redis.call('HVALS', MEMBERS)) do
      longest = math.max(longest, cmsgpack.unpack(packed).session_timeout_ms)
    end
    regain()
    hold = longest > 0 and now + longest or 0
    clock_dirty = true
  end
  stored[4] = run_id
  state_dirty = true
end

local function holding()
  return now < hold
end

-- Partitions that were let go reach the members they were meant for.
local function settle()
  if holding() then
    return
  end
  local moves = redis.call('HGETALL', MOVES)
  for i = 1, #moves, 2 do
    local partition, target = moves[i], moves[i + 1]
    if redis.call('HEXISTS', OWNERS, partition) == 0 then
      if target == '' then
        redis.call('HDEL', MOVES, partition)
      elseif redis.call('HEXISTS', MEMBERS, target) == 1 then
        grant(partition, target)
      end
    end
  end
end

-- Time passes: a hold ends, sessions and the patience with those that do not let go run out.
local function expire()
  if holding() or is_classic then
    return
  end
  local due = hold > 0
  if due then
    hold = 0
    state_dirty = true
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, '-inf', int(now))) do
    remove(member)
    evicted.session = evicted.session + 1
    due = true
  end
  for _, partition in ipairs(redis.call('ZRANGEBYSCORE', REVOKED, '-inf', int(now))) do
    local owner = redis.call('HGET', OWNERS, partition)
    if owner then
      remove(owner)
      evicted.rebalance = evicted.rebalance + 1
      due = true
    end
  end
  if due then
    settle()
  end
end

-- Committed offsets in the order of `partitions`, -1 for none.
local function offsets_of(partitions)
  local offsets = {}
  for first = 1, #partitions, FIELDS_PER_CALL do
    local last = math.min(first + FIELDS_PER_CALL - 1, #partitions)
    for _, packed in ipairs(redis.call('HMGET', OFFSETS, unpack(partitions, first, last))) do
      offsets[#offsets + 1] = packed and cmsgpack.unpack(packed)[1] or -1
    end
  end
  return offsets
end

-- What is known of how records that the group has not passed were handled: `to`, below which they were handed out, and
-- `open`, records with an attempt that was counted, each {offset, attempts, the member that counted the last one, and
-- SUSPECT where the first was counted because it may have ended its consumer, GUILTY once it is known to have, until when
-- its partition rests}.
local SUSPECT, GUILTY = 1, 2
local function attempts_of(partition)
  local packed = redis.call('HGET', ATTEMPTS, partition)
  return packed and cmsgpack.unpack(packed) or { to = 0, open = {} }
end

local function put_attempts(partition, attempts)
  if attempts.to == 0 and #attempts.open == 0 then
    redis.call('HDEL', ATTEMPTS, partition)
  else
    redis.call('HSET', ATTEMPTS, partition, cmsgpack.pack(attempts))
  end
end

-- The group goes on at `offset`, having handed out what is below `to` (nil: as far as is known already). Who goes back
-- handles everything as if for the first time.
local function pass_attempts(partition, before, offset, to)
  if redis.call('HEXISTS', ATTEMPTS, partition) == 0 and not to then
    return
  end
  local attempts = offset < before and { to = 0, open = {} } or attempts_of(partition)
  local open = {}
  for _, entry in ipairs(attempts.open) do
    if entry[1] >= offset then
      open[#open + 1] = entry
    end
  end
  to = to or attempts.to
  put_attempts(partition, { to = to > offset and to or 0, open = open })
end

-- What `_offsets` is to have. `urgent`: nobody may be told of the offset before it is there. Lost with Redis, a first
-- offset would be resolved anew, and after one that went back records would be skipped.
local function unsaved(partition, urgent)
  if request.log and redis.call('HGET', UNSAVED, partition) ~= '1' then
    redis.call('HSET', UNSAVED, partition, urgent and '1' or '0')
    if urgent then
      redis.call('HINCRBY', STATE, 'urgent', 1)
    end
  end
end

local function saved(partition)
  if redis.call('HGET', UNSAVED, partition) == '1' then
    redis.call('HINCRBY', STATE, 'urgent', -1)
  end
  redis.call('HDEL', UNSAVED, partition)
end

-- Versions rise like generations: a snapshot taken before a loss never outranks what was committed after it.
local function put_offset(partition, offset, metadata, delivered, urgent, leader_epoch)
  local packed = redis.call('HGET', OFFSETS, partition)
  local former = packed and cmsgpack.unpack(packed) or { -1, 0 }
  local version = former[2]
  pass_attempts(partition, former[1], offset, delivered)
  version = math.max(version + 1, forgotten + 1, now)
  redis.call('HSET', OFFSETS, partition, cmsgpack.pack({ offset, version, metadata, now, leader_epoch }))
  unsaved(partition, urgent or offset < former[1] or former[1] < 0)
end

-- What there is of up to `version` is forgotten.
local function forget_up_to(version)
  if version > forgotten then
    forgotten = version
    redis.call('HSET', STATE, 'forgotten', int(forgotten))
    if not exists then
      redis.call('PEXPIRE', STATE, int(REFUSED_MS))
    end
  end
end

-- The group is no more. Its generation, the ids that are refused and what was forgotten outlive it for a day.
local function wipe()
  redis.call('DEL', MEMBERS, SESSIONS, HELD, OWNERS, MOVES, REVOKED, TOPICS, OFFSETS, INSTANCES, ATTEMPTS, UNSAVED,
    PROTOCOLS, ASSIGNMENTS, ARRIVED)
  redis.call('HDEL', STATE, 'created', 'stale', 'hold', 'emptied', 'urgent', 'rebalanced', 'type', 'phase', 'joined',
    'deadline', 'extends', 'protocol_type', 'protocol', 'leader', 'summary', 'clock')
  -- Another log that shares this Redis has offsets of its own in the group: its server puts them back.
  for _, field in ipairs(redis.call('HKEYS', STATE)) do
    if string.match(field, '^restored/') and field ~= 'restored/' .. (request.log or request.restores or '') then
      redis.call('HDEL', STATE, field)
    end
  end
  redis.call('PEXPIRE', STATE, int(REFUSED_MS))
end

-- The commit rule: the partitions of `commits` that `member` may not commit at generation `sent`.
local function fenced_commits(member, sent, commits)
  local fenced = {}
  local parts = held_of(member).parts
  for _, commit in ipairs(commits) do
    local part = parts[commit[1]]
    if not part or part[1] > sent or is_lost(sent) then
      fenced[#fenced + 1] = commit[1]
    end
  end
  return fenced
end

-- Why `member` may not speak for an instance that another one has. One whose id is not known here was lost with Redis: what
-- it sent then may come behind its own new join, and clients that hear of another process under their instance give up.
local function refusal_for_instance(member)
  return refusal_of(member) and 'fenced_instance' or 'unknown_member'
end

-- Why `member` of a classic group may not speak as one of `sent`, if he may not.
local function refused_member(member, instance, sent)
  local holder = (instance or '') == '' and member or redis.call('HGET', INSTANCES, instance)
  if holder and holder ~= member then
    return refusal_for_instance(member)
  end
  if not is_classic or not holder or redis.call('HEXISTS', MEMBERS, member) == 0 then
    return 'unknown_member'
  end
  if is_anothers(member) then
    return 'other_principal'
  end
  return sent ~= joined_generation and 'illegal_generation' or nil
end

local function put_offsets(commits, urgent)
  for _, commit in ipairs(commits) do
    put_offset(commit[1], commit[2], commit[3], commit[4], urgent, commit[5])
  end
end

local function first_score(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or math.huge
end

-- Milliseconds until something happens by itself; -1: never.
local function due_ms()
  local due = math.min(first_score(SESSIONS), first_score(REVOKED), deadline > 0 and deadline or math.huge)
  if due == math.huge then
    return -1
  end
  return math.max((holding() and hold or due) - now, 0)
end

-- Writes what changed and gives the reply its common members.
local function finish(reply)
  for member in pairs(held_dirty) do
    local held = held_of(member)
    if changed[member] then
      held.changed = generation
    end
    redis.call('HSET', HELD, member, cmsgpack.pack(held))
  end
  if state_dirty and exists then
    redis.call('HSET', STATE, 'generation', int(generation), 'revision', int(revision), 'stale', stale and '1' or '0',
      'run_id', stored[4], 'hold', int(hold), 'lost', int(lost), 'regained', int(regained))
  end
  if clock_dirty and exists then
    redis.call('HSET', STATE, 'clock', int(now))
  end
  local members = {}
  for member in pairs(changed) do
    members[#members + 1] = member
  end
  reply.generation_before = generation_before
  reply.generation = generation
  reply.changed = members
  reply.exists = exists
  reply.created = created
  reply.classic = is_classic
  reply.holding = holding()
  reply.plan = stale and not holding()
  reply.due_ms = due_ms()
  reply.member_count = redis.call('ZCARD', SESSIONS)
  reply.evicted = evicted
  reply.unsaved = redis.call('EXISTS', UNSAVED) == 1
  reply.urgent = tonumber(redis.call('HGET', STATE, 'urgent') or 0) > 0
  reply.keeper = keeper
  return cmsgpack.pack(reply)
end

notice_clock()
notice_restart()

-- A later keeper has this group: what an earlier one knows of it may have been undone since.
if request.restores and request.keeper < keeper then
  return cmsgpack.pack({ status = 'fenced_keeper', keeper = keeper })
end

-- Redis was emptied, or restarted and may be older than `_offsets`: what that has comes first. So does what a keeper has
-- that came since.
local is_behind = exists and not request.entries and (request.log or request.restores) and keeper < request.keeper
local is_unrestored = request.log and (exists or not request.new) and redis.call('HGET', STATE, RESTORED) ~= stored[4]
if is_behind or is_unrestored then
  return cmsgpack.pack({ status = 'unrestored' })
end

expire()
