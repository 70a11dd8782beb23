#!/usr/bin/env bash
# Makes pictures of live runs in docs/pictures. It needs Chromium.
#
#   tools/page_pictures.sh             page-light.png and page-dark.png: the page of
#                                      examples/paced.toml, half a minute after a link became slow
#   tools/page_pictures.sh bad-day     bad-day-page.png: the page of examples/bad-day.toml with
#                                      paced workers, once a worker is slow and other routes taken;
#                                      bad-day-steps.svg: its steps, when it has ended
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
root=$PWD
command -v chromium >/dev/null || { echo "page_pictures: install chromium first" >&2; exit 1; }
folder=$(mktemp -d)
run=
end() {
  [ -z "$run" ] || kill -TERM "$run" 2>/dev/null || true
  wait || true
  rm -rf "$folder"
}
trap end EXIT

# begin JOB [TRAIN OPTIONS]: runs are written below the folder where they are begun.
begin() {
  cd "$folder"
  "$root/run" train "$@" >"$folder/log" 2>&1 &
  run=$!
}

# Waits until the run has made so many steps.
wait_for_step() {
  until [ "$(cat "$folder"/runs/*/metrics.jsonl 2>/dev/null | wc -l)" -ge "$1" ]; do
    kill -0 "$run" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.2
  done
}

url() { cat "$folder"/runs/*/page.url; }

# picture NAME SCHEME URL WIDTH,HEIGHT
picture() {
  local number=1  # Chromium's numbers of the two colour schemes
  [ "$2" = light ] || number=0
  chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --user-data-dir="$folder/$1" --blink-settings=preferredColorScheme=$number \
    --virtual-time-budget=4000 --window-size="$4" \
    --screenshot="$root/docs/pictures/$1.png" "$3" 2>/dev/null
}

case ${1:-live} in
  live)
    begin "$root/examples/paced.toml" --job.steps=5000 --job.checkpoint_every=0
    wait_for_step 20
    address=$(url)
    curl -sS --data 'link=0-1:30ms' "${address/\/\?//api/inject?}" && echo
    sleep 15  # the slow link is found, and another plan is in force
    for scheme in dark light; do picture "page-$scheme" $scheme "$address" 1100,1900; done
    ls -l "$root"/docs/pictures/page-*.png ;;
  bad-day)
    begin "$root/examples/bad-day.toml" --device.kind=paced
    wait_for_step 110
    picture bad-day-page light "$(url)" 1100,1900
    wait "$run"
    run=
    cp "$folder"/runs/bad-day/steps.svg "$root/docs/pictures/bad-day-steps.svg"
    ls -l "$root"/docs/pictures/bad-day-* ;;
  *)
    echo "page_pictures: expected live or bad-day, found '$1'" >&2
    exit 2 ;;
esac
