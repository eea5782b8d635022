#!/usr/bin/env bash
# Makes the manifests of this folder anew of the chart: one for each of its examples. Needs helm, or HELM=path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
into="${1:-.}"
for values in ../helm/examples/*.yaml; do
  name="$(basename "$values" .yaml)"
  {
    echo "# Made by render.sh of the Helm chart and its example $name.yaml: change those."
    "${HELM:-helm}" template silt ../helm/siltlog --namespace siltlog --kube-version 1.34 --values "$values" --skip-tests
  } >"$into/$name.yaml"
done
