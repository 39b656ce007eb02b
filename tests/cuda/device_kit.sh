#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and times globalq's kernels on this machine's GPU, with programs that scripts/device-kit made elsewhere.
#
#   ./run [RESULTS]    RESULTS: where logs and numbers go (results)
#
# It needs a driver, NCCL and a C++ library of the machine that made the kit or newer; no toolkit and no network. compute-sanitizer
# is used where it is found. Each step ends within ten minutes, all of them within 30. Exits with 1 when a step failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
all=1790

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
tar -C "$programs" -xzf "$here/programs.tar.gz" || exit 1
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GTEST_BRIEF=1
cd "$programs" || exit 1

status=0
summary=()
# step NAME SECONDS COMMAND...
step() {
  local name=$1 limit=$2 start=$SECONDS left=$((all - SECONDS)) code=0
  shift 2
  [ "$left" -ge "$limit" ] || limit=$left
  if [ "$limit" -le 0 ]; then
    code="no time left"
  else
    timeout --kill-after=5 "$limit" "$@" >"$results/$name.log" 2>&1 || code=$?
    [ "$code" != 124 ] || code="ended after $limit s"
  fi
  [ "$code" != 0 ] || ! grep -qs 'PASSED  \] 0 tests' "$results/$name.log" || code="no tests"
  [ "$code" = 0 ] || [ "$code" = "left out" ] || status=1
  [ "$code" = 0 ] && code=passed || tail -n 20 "$results/$name.log" 2>/dev/null
  summary+=("$(printf '%-10s %5d s  %s' "$name" $((SECONDS - start)) "$code")")
}

step gpu 30 nvidia-smi
step capture 300 ./mean_device_test '--gtest_filter=MeanOnDevice.*:MeanOfRanks.*'
step nccl 60 ./nccl_device_test
step stream 500 ./mean_device_test '--gtest_filter=-Mean*'
step check 120 ./globalq_device_bench --check 1048576
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" 240 compute-sanitizer --error-exitcode 1 --tool "$tool" ./mean_device_test \
      '--gtest_filter=Stream.zeros*:Stream.a_value*:MeanOnDevice.has*'
  done
else
  summary+=("sanitizer            left out: compute-sanitizer was not found")
fi
step bench 590 ./globalq_device_bench '--benchmark_filter=/n:(1048576|16777216|268435456)/' --benchmark_out_format=json \
  --benchmark_out="$results/device.json"

printf '\nkit of %s\n' "$(cat "$here/commit")"
printf '%s\n' "${summary[@]}"
exit "$status"
