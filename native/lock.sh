#!/bin/sh
# lock.sh: writes Cargo.lock, by which cargo builds, of crates.lock. That has of each crate its version and its hash; where
# crates come from, which is the same of all, cargo tells.
# lock.sh --pin [--upgrade]: writes crates.lock, with what Cargo.toml asks for and it lacks, or with what is newest.
set -eu
cd "$(dirname "$0")"

die() {
  echo "lock.sh: $*" >&2
  exit 1
}

write() {
  cargo generate-lockfile --quiet
  source="$(sed -n '/^source = /p' Cargo.lock | sort -u)"
  [ "$(echo "$source" | grep -c .)" = 1 ] || die "crates come from one place, and cargo told: $source"
  awk -v source="$source" '/^checksum = / { print source } { print }' crates.lock > Cargo.lock.new
  mv Cargo.lock.new Cargo.lock
}

pin() { # pin WHAT-CARGO-UPDATE-TAKES…
  [ ! -e crates.lock ] || write
  cargo update --quiet "$@"
  { echo "# Cargo.lock without where crates come from: lock.sh writes one of the other." && sed '/^#/d; /^source = /d' Cargo.lock; } > crates.lock.new
  mv crates.lock.new crates.lock
}

command -v cargo >/dev/null || die "it needs Rust's cargo, 1.85 or newer, and there is none on PATH"
case "$*" in
  "") write ;;
  --pin) pin --workspace ;;
  "--pin --upgrade") pin ;;
  *) die "it takes nothing, --pin or --pin --upgrade, and not: $*" ;;
esac
