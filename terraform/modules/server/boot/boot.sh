#!/bin/bash
# What an instance does once, before it serves. TOP is where / is, for a trial.
set -euo pipefail
top=${TOP:-}
# shellcheck source=/dev/null
. "$top/etc/siltlog/aws.env"
export AWS_REGION="$AWS"

metadata=http://169.254.169.254/latest
token=$(curl -sSf -X PUT "$metadata/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 600')
about() { curl -sSf -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1"; }
instance=$(about instance-id)
address=$(about local-ipv4)

# The volume is free once the instance before has ended. mkfs itself refuses one that has a file system.
device="$top/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${VOLUME/-/}"
until [ -e "$device" ]; do
  aws ec2 attach-volume --volume-id "$VOLUME" --instance-id "$instance" --device /dev/sdf || true
  sleep 5
done
blkid "$device" || mkfs.xfs "$device"
data="$top/var/lib/private/siltlog"
install -d -m 0700 "$top/var/lib/private" "$data"
echo "$device $data xfs defaults,nofail,noatime 0 2" >> "$top/etc/fstab"
mountpoint -q "$data" || mount "$data"
xfs_growfs "$data"

dnf -y -q install python3.11 python3.11-pip
python3.11 -m venv "$top/opt/siltlog"
"$top/opt/siltlog/bin/pip" install --quiet --no-input "siltlog[server]==$VERSION"

cat > "$top/etc/siltlog/environment" <<END
SILT_ROOT=$ROOT
SILT_S3_REGION=$S3_REGION
END
cat > "$top/etc/siltlog/siltlog.toml" <<END
host = "0.0.0.0"
hosts = "$HOST"
auth = "on"
metrics_port = 9464
END
mkdir -p "$top/etc/systemd/system/siltlog.service.d"
cat > "$top/etc/systemd/system/siltlog.service.d/aws.conf" <<'END'
[Unit]
RequiresMountsFor=/var/lib/private/siltlog
AssertPathIsMountPoint=/var/lib/private/siltlog

[Service]
LoadCredential=tls.crt:/etc/siltlog/tls.crt
LoadCredential=tls.key:/etc/siltlog/tls.key
Environment=SILT_TLS_CERT=%d/tls.crt
Environment=SILT_TLS_KEY=%d/tls.key
END

regularly() { # regularly NAME when: runs NAME.sh
  printf '[Unit]\nDescription=Siltlog: %s\n\n[Service]\nType=oneshot\nExecStart=/bin/bash /opt/siltlog-aws/%s.sh\n' \
    "$1" "$1" > "$top/etc/systemd/system/siltlog-$1.service"
  printf '[Unit]\nDescription=Siltlog: %s\n\n[Timer]\nOnCalendar=%s\nAccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n' \
    "$1" "$2" > "$top/etc/systemd/system/siltlog-$1.timer"
}
regularly measure minutely
regularly secrets daily

until bash "$top/opt/siltlog-aws/secrets.sh"; do
  sleep 15
done
systemctl daemon-reload
systemctl enable --now siltlog.service siltlog-measure.timer siltlog-secrets.timer
aws route53 change-resource-record-sets --hosted-zone-id "$ZONE" --change-batch "{\"Changes\": [{\"Action\": \"UPSERT\",
  \"ResourceRecordSet\": {\"Name\": \"$HOST\", \"Type\": \"A\", \"TTL\": 30,
  \"ResourceRecords\": [{\"Value\": \"$address\"}]}}]}"

# Compaction has an environment of its own, with Java, and comes when the server serves.
if [ "$COMPACTS" = yes ]; then
  dnf -y -q install java-17-amazon-corretto-headless
  python3.11 -m venv "$top/opt/siltlog-pipelines"
  "$top/opt/siltlog-pipelines/bin/pip" install --quiet --no-input "siltlog[spark]==$VERSION"
  systemctl enable --now siltlog-compact.timer
fi
