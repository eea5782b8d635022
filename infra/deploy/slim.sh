#!/bin/sh
# slim.sh FOLDER: leaves of the environment in FOLDER what runs there, compiled.
set -eu
for packages in "$1"/lib/python3.*/site-packages; do
  rm -rf "$packages"/pyarrow/include "$packages"/pyarrow/tests "$packages"/pyarrow/libarrow_flight.so* \
    "$packages"/pyarrow/libarrow_python_flight.so* "$packages"/pyarrow/_flight.* "$packages"/pyarrow/flight.py
  find "$packages"/botocore/data -mindepth 1 -maxdepth 1 -type d \
    ! -name s3 ! -name glue ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -rf {} +
  rm -rf "$packages"/numpy/*/tests "$packages"/numpy/tests
  find "$packages" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \) -delete
  # The libraries that a wheel holds three times, as links that it could not keep.
  for library in "$packages"/pyarrow/*.so; do
    for name in "$library".*; do
      if [ -f "$name" ] && [ ! -L "$name" ] && cmp -s "$library" "$name"; then ln -sf "$(basename "$library")" "$name"; fi
    done
  done
done
"$1"/bin/python -m compileall -q -j 0 "$1"/lib
# A library that another needs is missed here, and not where it runs. So is a codec that does not load: the server would
# go on with numpy and say so in its log alone.
"$1"/bin/python -c 'import pyarrow.dataset, pyarrow.fs, siltlog.server.wiring'
for codec in "$1"/lib/python3.*/site-packages/siltlog_native; do
  [ ! -d "$codec" ] || "$1"/bin/python -c 'import siltlog_native'
done
