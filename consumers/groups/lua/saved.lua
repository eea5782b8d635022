-- `_offsets` has these now.
--
-- request: restores, keeper, versions of {partition, version}.
-- reply: status ok.

for _, entry in ipairs(request.versions) do
  local packed = redis.call('HGET', OFFSETS, entry[1])
  if not packed or cmsgpack.unpack(packed)[2] <= entry[2] then
    saved(entry[1])
  end
end
return finish({ status = 'ok' })
