#!/bin/sh
# Installs Siltlog for this user, and begins a server in this folder. Nothing is asked of root, and nothing is sent.
set -eu

usage() {
  cat <<'END'
sh install.sh [OPTION…] [-- WHAT `silt init` TAKES]

  --dry-run          Say what would be done, and do nothing.
  --version 1.2.3    That version; without it the newest there is.
  --extras a,b       What is installed beside the client: server (as it is), sql, spark; "" for the client alone.
  --wheel FILE       A wheel that is here already. SHA256SUMS beside it must name it; or --sha256 SUM says what it is.
  --codec FILE       The native codec's wheel, by which a server serves Kafka's clients sooner. SHA256SUMS beside it must
                     name it. A later run without --codec removes it.
  --no-init          Install, and begin nothing here.

It may be run again at any time: what is there is brought up to date, and a folder with a siltlog.toml is left as it is.
END
}

die() {
  echo "install.sh: $*" >&2
  exit 1
}

run() { # run COMMAND…: says it; and does it, but for --dry-run
  echo "+ $*"
  [ "$dry" = yes ] || "$@"
}

uv_version=0.13.9
uv_requirements() { # what is fetched must be one of these
  echo "uv==$uv_version \\"
  sed 's/.*/    --hash=sha256:& \\/; $s/ \\$//' <<'END'
16963d19594e18d746a70c7fce82237bde4f2cac4cfcf0ca2b84796fe9d0c6e9
2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25
3eeeb51a267a2144640fcd8f38d4a2f63439b39bc47445fd84727c3fc462c843
5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe
56ec37616c00220032fc7b8c9d0ef51367fd0d70d9cd6ddd841660f949f84fed
66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63
6a44b2ed8111d2f60d2b92627c5dccda3f7ed7570b18ce115e569cd68c28246b
6b0c7b9f47a5d011939d61e324d3fe18a8bc155d8dd53add738709a92f290a7c
6d5114bba238adddacb32fb11904f2b3ff4e988f8e9ff0d8d3b5e9822cf836b8
7ec1e1dd9b6cb335c301afdf877989df384227313981850755a59561f75e4ab8
a2ee66fe8b6608e1482ab1bde5799da04705c1cb40324c7f66054ecf46ae6e40
a6e845f387e4ed55bb59342957a9179e24a631fcc7668bda3426ae1cef8ed4b9
c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5
c5dbdb7c8737cd183a9dce95b39cfd1f3d54ec2a27a1bb58f160293f9ba2c805
d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19
db5c8df7145c21ffea9c0f74e38823bac3af60cbadf0e26b8633f08627b17bab
dd6f4f93ddf8a668c73f0945f3638444b2140a4e15a3912067493fc6335543e4
ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375
eeb92051c2123b9730c46b04cc843cfa4bc7d7b0aec56df431a2215ef4cb0273
END
}

find_uv() { # sets uv; one that is absent is installed by Python into a folder of its own, or it is told how to get one
  own="${XDG_DATA_HOME:-$HOME/.local/share}/siltlog/uv"
  for uv in uv "$HOME/.local/bin/uv" "$own/bin/uv"; do
    ! command -v "$uv" >/dev/null || return 0
  done
  for python in python3 python3.14 python3.13 python3.12 python3.11; do
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then continue; fi
    echo "uv is not here: Python puts it into $own"
    run "$python" -m venv "$own"
    if [ "$dry" = no ]; then uv_requirements >"$own/requirements.txt"; fi
    run "$own/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --only-binary :all: \
      --require-hashes -r "$own/requirements.txt"
    uv="$own/bin/uv"
    return 0
  done
  die "uv is not here, and no Python that could install it: install uv, or python3-venv, with your system's packages," \
    "and run this again"
}

sum_of() { # sum_of FILE
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

check() { # check FILE SUM OR: it is what was meant; where SUM is empty SHA256SUMS beside it says what that is, OR else
  [ -f "$1" ] || die "there is no file $1"
  wanted="$2"
  if [ -z "$wanted" ]; then
    sums="$(dirname "$1")/SHA256SUMS"
    [ -f "$sums" ] || die "nothing says what $1 must be: put the release's SHA256SUMS beside it$3"
    wanted="$(awk -v name="$(basename "$1")" '$2 == name || $2 == "*" name { print $1 }' "$sums")"
    [ -n "$wanted" ] || die "$sums does not name $(basename "$1")"
  fi
  found="$(sum_of "$1")"
  [ "$found" = "$wanted" ] ||
    die "$1 is not what was released: its SHA-256 is $found, and must be $wanted. Nothing was installed"
}

url_of() { # url_of FILE
  printf 'file://%s/%s\n' "$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd)" "$(basename -- "$1")" |
    sed 's/%/%25/g; s/ /%20/g; s/#/%23/g; s/,/%2C/g'
}

dry=no init=yes version="" extras=server wheel="" codec="" sum=""
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry=yes ;;
    --no-init) init=no ;;
    --version | --extras | --wheel | --codec | --sha256)
      [ $# -ge 2 ] || die "$1 wants a value; --help says which"
      case "$1" in
        --version) version="$2" ;;
        --extras) extras="$2" ;;
        --wheel) wheel="$2" ;;
        --codec) codec="$2" ;;
        --sha256) sum="$2" ;;
      esac
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) die "$1 is no option; --help says which there are" ;;
  esac
  shift
done
[ -z "$version" ] || [ -z "$wheel" ] || die "--wheel is of one version: leave out --version"
[ -z "$sum" ] || [ -n "$wheel" ] || die "--sha256 says what a --wheel is, and there is none"

what="siltlog${extras:+[$extras]}"
if [ -n "$wheel" ]; then
  check "$wheel" "$sum" ", or say --sha256"
  what="$what @ $(url_of "$wheel")"
elif [ -n "$version" ]; then
  what="$what==$version"
fi

if [ -n "$codec" ]; then
  [ -n "$extras" ] || die "--codec is of a server: leave out --extras \"\""
  check "$codec" "" ""
  codec="siltlog-native @ $(url_of "$codec")"
fi

find_uv
run "$uv" tool install --upgrade --python '>=3.11' ${codec:+--with} ${codec:+"$codec"} "$what"
[ "$dry" = no ] || exit 0

bin="$("$uv" tool dir --bin)"
silt="$bin/silt"
[ -x "$silt" ] || die "uv installed no silt into $bin"
"$silt" --version
case ":$PATH:" in
  *":$bin:"*) ;;
  *) echo "$bin is not on PATH: $uv tool update-shell puts it there; until then say $silt" ;;
esac
[ "$init" = yes ] || exit 0
if [ -e siltlog.toml ]; then
  echo "siltlog.toml is here already, and stays. Next: silt serve"
elif "$silt" init --help >/dev/null 2>&1; then
  run "$silt" init "$@"
else
  echo "This version begins nothing by itself. Next: $silt serve"
fi
