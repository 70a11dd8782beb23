#!/usr/bin/env bash
# Makes docs/pictures/page-light.png and page-dark.png from a live run with a slow link.
#
#   tools/page_pictures.sh [JOB] [TRAIN OPTIONS]     JOB: default examples/paced.toml
#
# The job needs links (two stages or more) and enough steps for half a minute.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
root=$PWD
job=$(readlink -f "${1:-examples/paced.toml}")
shift || true
command -v chromium >/dev/null || { echo "page_pictures: install chromium first" >&2; exit 1; }
folder=$(mktemp -d)
# Runs are written below the folder where they are begun.
cd "$folder"
"$root/run" train "$job" --job.steps=5000 --job.checkpoint_every=0 "$@" >"$folder/log" 2>&1 &
run=$!
end() {
  kill -TERM "$run" 2>/dev/null || true
  wait "$run" || true
  rm -rf "$folder"
}
trap end EXIT
until url=$(cat "$folder"/runs/*/page.url 2>/dev/null) &&
  [ "$(cat "$folder"/runs/*/metrics.jsonl 2>/dev/null | wc -l)" -ge 20 ]; do
  kill -0 "$run" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
  sleep 1
done
curl -sS --data 'link=0-1:30ms' "${url/\/\?//api/inject?}" && echo
sleep 15  # the slow link is found, and another plan is in force
for scheme in dark light; do
  # Chromium's numbers of the two colour schemes.
  [ $scheme = dark ] && number=0 || number=1
  chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --user-data-dir="$folder/$scheme" --blink-settings=preferredColorScheme=$number \
    --virtual-time-budget=4000 --window-size=1100,1900 \
    --screenshot="$root/docs/pictures/page-$scheme.png" "$url" 2>/dev/null
done
ls -l "$root"/docs/pictures/page-*.png
