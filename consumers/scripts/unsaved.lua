-- reply: status ok; entries of {partition, offset, version, metadata, ms}: those that `_offsets` is yet to have.

local entries = {}
for _, partition in ipairs(redis.call('HKEYS', UNSAVED)) do
  local packed = redis.call('HGET', OFFSETS, partition)
  if packed then
    local entry = cmsgpack.unpack(packed)
    entries[#entries + 1] = { partition, entry[1], entry[2], entry[3], entry[4] }
  else
    saved(partition)
  end
end
return finish({ status = 'ok', entries = entries })
