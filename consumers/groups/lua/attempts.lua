-- Counts an attempt to handle a record, or only tells what is known of it.
--
-- request: member, generation, partition, offset, count (false: only tell), open_max (records of a partition with
-- attempts, at most), suspect_max (given: the record may have ended a former holder, and is about to be handled; it is
-- counted only while it has fewer attempts), backoff_ms and backoff_ms_max (given: handling it failed, and its partition
-- rests for so long after the first attempt, for twice as long after the next, and never for longer than the second).
-- reply: status ok | other_principal | fenced_commits (with partitions) | too_many; attempts, spent (true: not counted,
-- it had suspect_max already), committed (-1: nothing yet), lower: offsets below this one whose last attempt was this
-- member's; rest_ms: for how long its partition rests.

local partition, offset = request.partition, request.offset
if is_anothers(request.member) then
  return finish({ status = 'other_principal' })
end
local fenced = fenced_commits(request.member, request.generation, { { partition } })
if #fenced > 0 then
  return finish({ status = 'fenced_commits', partitions = fenced })
end

local reply = {
  status = 'ok', attempts = 0, spent = false, committed = offsets_of({ partition })[1], lower = {}, rest_ms = 0,
}
local attempts = attempts_of(partition)
local found = nil
for _, entry in ipairs(attempts.open) do
  if entry[1] == offset then
    found = entry
  elseif entry[1] < offset and entry[3] == request.member then
    reply.lower[#reply.lower + 1] = entry[1]
  end
end
local rests_until = found and found[5] or 0
if request.backoff_ms and rests_until > now then
  -- It is said again: nobody was given the record meanwhile.
  reply.rest_ms = rests_until - now
elseif request.count and offset >= reply.committed then
  if not found then
    if #attempts.open >= request.open_max then
      return finish({ status = 'too_many' })
    end
    found = { offset, 0, request.member, request.suspect_max and SUSPECT or nil }
    attempts.open[#attempts.open + 1] = found
  end
  if request.suspect_max then
    -- Whoever counted it as a suspect has ended as well: it was this record that ended the one before, who had begun it
    -- without counting it.
    if found[4] == SUSPECT and found[3] ~= request.member then
      found[2], found[4] = found[2] + 1, GUILTY
    end
    reply.spent = found[2] >= request.suspect_max
  end
  found[3] = request.member
  if not reply.spent then
    found[2] = found[2] + 1
  end
  if request.backoff_ms then
    reply.rest_ms = math.min(request.backoff_ms * 2 ^ (found[2] - 1), request.backoff_ms_max)
    found[4], found[5] = found[4] or 0, now + reply.rest_ms
  end
  put_attempts(partition, attempts)
end
if found then
  reply.attempts = found[2]
end
return finish(reply)
