-- Counts an attempt to handle a record, or only tells what is known of it.
--
-- request: member, generation, partition, offset, count (false: only tell), open_max (records of a partition with
-- attempts, at most).
-- reply: status ok | fenced_commits (with partitions) | too_many; attempts, committed (-1: nothing yet), lower: offsets
-- below this one whose last attempt was this member's.

local partition, offset = request.partition, request.offset
local fenced = fenced_commits(request.member, request.generation, { { partition } })
if #fenced > 0 then
  return finish({ status = 'fenced_commits', partitions = fenced })
end

local reply = { status = 'ok', attempts = 0, committed = offsets_of({ partition })[1], lower = {} }
local attempts = attempts_of(partition)
local found = nil
for _, entry in ipairs(attempts.open) do
  if entry[1] == offset then
    found = entry
  elseif entry[1] < offset and entry[3] == request.member then
    reply.lower[#reply.lower + 1] = entry[1]
  end
end
if request.count and offset >= reply.committed then
  if not found then
    if #attempts.open >= request.open_max then
      return finish({ status = 'too_many' })
    end
    found = { offset, 0, request.member }
    attempts.open[#attempts.open + 1] = found
  end
  found[2], found[3] = found[2] + 1, request.member
  put_attempts(partition, attempts)
end
if found then
  reply.attempts = found[2]
end
return finish(reply)
