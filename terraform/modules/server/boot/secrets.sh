#!/bin/bash
# Fetches the secret, the certificate and its key. Where one differs from what is here, the server starts again with
# them; a certificate and a key that do not belong together change nothing.
set -euo pipefail
top=${TOP:-}
# shellcheck source=/dev/null
. "$top/etc/siltlog/aws.env"
export AWS_REGION="$AWS"
umask 077
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT

for each in secret tls.crt tls.key; do
  aws secretsmanager get-secret-value --secret-id "$NAME/$each" --query SecretString --output text > "$fetched/$each"
done
if [ "$(openssl x509 -in "$fetched/tls.crt" -noout -pubkey)" != "$(openssl pkey -in "$fetched/tls.key" -pubout)" ]; then
  echo "$NAME/tls.key is not the key of $NAME/tls.crt: put both" >&2
  exit 1
fi
changed=no
for each in secret tls.crt tls.key; do
  if ! cmp -s "$fetched/$each" "$top/etc/siltlog/$each"; then
    install -m 0600 "$fetched/$each" "$top/etc/siltlog/$each"
    changed=yes
  fi
done
[ "$changed" = no ] || systemctl try-restart siltlog.service
