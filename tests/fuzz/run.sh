#!/bin/sh
# One fuzzer for some seconds; one line if it finds nothing, else what it found and where the input lies.
#   run.sh FUZZER SECONDS FOUND_FOLDER CORPUS_FOLDER
if "$1" -max_total_time="$2" -verbosity=1 -rss_limit_mb=4096 -artifact_prefix="$3-" "$3" "$4" >"$3.log" 2>&1; then
  echo "$(basename "$1"): $(sed -n 's/^Done \([0-9]*\) runs in \(.*\) second.*/\1 inputs in \2 s, nothing found/p' "$3.log")"
else
  tail -n 40 "$3.log"
  exit 1
fi
