#!/bin/bash
# Tells CloudWatch how the server is, in four numbers; of one that does not answer two.
set -euo pipefail
top=${TOP:-}
# shellcheck source=/dev/null
. "$top/etc/siltlog/aws.env"
export AWS_REGION="$AWS"
used=$(df --output=pcent "${DATA:-$top/var/lib/private/siltlog}" | tail -n 1 | tr -dc 0-9)
numbers=$({ curl -sf -m 10 "http://127.0.0.1:${PORT:-9464}/metrics" || true; } | awk -v now="$(date +%s)" -v used="$used" '
  $1 == "silt_ready" { ready = $2 }
  $1 == "silt_wal_used_bytes" { wal = $2 }
  $1 == "silt_wal_bytes_max" { bytes_max = $2 }
  $1 == "silt_tls_not_after_timestamp_seconds" { end = $2 }
  END {
    printf "Ready=%d DiskUsedPercent=%d", ready, used
    if (bytes_max > 0) printf " WalUsedPercent=%.1f", 100 * wal / bytes_max
    if (end > 0) printf " CertificateDays=%.1f", (end - now) / 86400
  }')
data=""
for number in $numbers; do
  data="$data MetricName=${number%=*},Value=${number#*=},Dimensions=[{Name=Name,Value=$NAME}]"
done
# shellcheck disable=SC2086
aws cloudwatch put-metric-data --namespace Siltlog --metric-data $data
