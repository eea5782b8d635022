#!/usr/bin/env bash
# A member of a consumer group in a shell: curl and jq are all it takes.
#
#   examples/consume.sh TOPIC GROUP [URL]      else SILT_URL, else http://localhost:7070
#
# Prints each value as a line and commits what it printed with the next poll, so a record is printed at least once. Run
# it twice at a time, and each gets half of the partitions. It ends when a poll brought nothing.
set -euo pipefail

usage='usage: examples/consume.sh TOPIC GROUP [URL]'
topic=${1:?$usage}
group=${2:?$usage}
url=${3:-${SILT_URL:-http://localhost:7070}}
member=$(cat /proc/sys/kernel/random/uuid)
generation=0
commit='[]'

leave() { curl -sf -X DELETE "$url/v1/groups/$group/members/$member"; }
trap leave EXIT

while true; do
    request=$(jq -nc --arg topic "$topic" --argjson generation "$generation" --argjson commit "$commit" '
        {generation: $generation, topics: [$topic], wait_ms: 2000} + if $commit == [] then {} else {commit: $commit} end')
    reply=$(curl -sS --fail-with-body "$url/v1/groups/$group/members/$member/poll" \
        -H 'Content-Type: application/json' -d "$request") || { status=$?; echo "$reply" >&2; exit $status; }
    jq -r '.records[].value' <<<"$reply"
    generation=$(jq .generation <<<"$reply")
    # Partitions that were read: their next offset is what this member is done with.
    commit=$(jq -c '[.partitions[] | select(.error == null) | {topic, partition, offset: .next_offset}]' <<<"$reply")
    if [ "$(jq '.partitions != [] and .records == []' <<<"$reply")" = true ]; then
        break
    fi
done
