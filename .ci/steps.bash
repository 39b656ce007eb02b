# SPDX-License-Identifier: Apache-2.0
# The checks that .ci/run and scripts/check-all run, and how they run, print and record them. Sourced at the top of the checkout.
#
# With GLOBALQ_TESTS_IN_FULL=ON in the environment each check includes what only scripts/check-all runs.

record=.ci/record.tsv  # script, step, result, seconds, date, commit, machine
export GLOBALQ_TESTS_IN_FULL=${GLOBALQ_TESTS_IN_FULL:-OFF}  # scripts/test reads it
jobs=$(nproc 2>/dev/null || echo 2)
log=$(mktemp)
background=$(mktemp -d)
trap 'rm -rf "$log" "$background"' EXIT

names=()
results=()
seconds=()
status=0

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS result=passed
  shift
  printf '\n==== %s\n' "$name"
  "$@" || result=FAILED
  [ "$result" = passed ] || status=1
  names+=("$name")
  results+=("$result")
  seconds+=($((SECONDS - start)))
  printf '==== %s: %s in %d s, %d s since the start\n' "$name" "$result" $((SECONDS - start)) "$SECONDS"
}

# begin NAME COMMAND...: starts a step that uses one core while the following steps use the others; end NAME waits for it.
declare -A running
begin() {
  local name=$1
  shift
  "$@" >"$background/$name" 2>&1 &
  running[$name]=$!
}
end() {
  local result=0
  wait "${running[$1]}" || result=$?
  cat "$background/$1"
  return "$result"
}

# recorded SCRIPT STEP: its seconds
recorded() {
  [ ! -f "$record" ] || awk -F '\t' -v script="$1" -v step="$2" '$1 == script && $2 == step { print $4 }' "$record"
}

# summary SCRIPT: results, and seconds beside those on record. Machines differ by half and more, so slower is no failure.
summary() {
  local i before
  printf '\n==== summary%34s\n' "on record"
  for i in "${!names[@]}"; do
    before=$(recorded "$1" "${names[i]}")
    printf '%-10s %-7s %5d s %10s\n' "${names[i]}" "${results[i]}" "${seconds[i]}" "${before:+$before s}"
  done
}

# age SCRIPT: what is on record of it
age() {
  [ -f "$record" ] || return 0
  local step result seconds date commit rest
  while IFS=$'\t' read -r _ step result seconds date commit rest; do
    printf '%s %s: %s %d days ago at %s in %d s\n' "$1" "$step" "$result" $((($(date +%s) - $(date -d "$date" +%s)) / 86400)) "$commit" \
      "$seconds"
  done < <(awk -F '\t' -v script="$1" '$1 == script' "$record")
}

# write_record SCRIPT: replaces what is on record of the steps that ran
write_record() {
  local i machine rows
  machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  machine="$machine family $(sed -n 's/^cpu family[^:]*: //p' /proc/cpuinfo | head -n 1), $jobs cores"
  rows=$(mktemp)
  for i in "${!names[@]}"; do
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "${names[i]}" "${results[i]}" "${seconds[i]}" "$(date +%F)" \
      "$(git rev-parse --short=12 HEAD)" "$machine" >>"$rows"
  done
  touch "$record"
  awk -F '\t' 'NR == FNR { new[$1, $2] = 1; print; next } !(($1, $2) in new)' "$rows" "$record" | sort >"$record.new"
  mv "$record.new" "$record"
  rm "$rows"
}

run_tests() { scripts/test 2>&1 | tee "$log"; }

build_docs() { cmake --preset docs >/dev/null && cmake --build --preset docs; }

compile_for_cuda() {
  if ! command -v nvcc >/dev/null; then
    echo "No nvcc on the PATH: the kernels are not compiled for CUDA."
    return 0
  fi
  scripts/bootstrap cuda && cmake --preset cuda -DGLOBALQ_TESTS_IN_FULL="$GLOBALQ_TESTS_IN_FULL" >/dev/null &&
    cmake --build --preset cuda --parallel "$jobs" &&
    ctest --test-dir build/cuda --parallel "$jobs" --output-on-failure --no-tests=error --timeout 900
}

# Compiles every header on its own.
compile_headers() { cmake --build --preset dev --parallel "$jobs" --target globalq_headers; }

# Runs the examples, their tests, the tests of documents, and benchmarks at their smallest sizes: in full those of papers and models too.
run_programs() {
  local targets=(examples/all tests/all globalq_bench globalq_collectives) without='^bench/(evidence|layers|levels|model|peers)'
  [ "$GLOBALQ_TESTS_IN_FULL" = OFF ] || { targets=(all) && without='^$'; }
  cmake --preset dev -DGLOBALQ_BUILD_EXAMPLES=ON -DGLOBALQ_BUILD_BENCH=ON >/dev/null &&
    cmake --build --preset dev --parallel "$jobs" --target "${targets[@]}" &&
    ctest --test-dir build/dev --parallel "$jobs" --output-on-failure --no-tests=error -L '^(bench|examples|docs)$' -E "$without"
}

# Fails if a compile step takes longer than its limit, which is higher for nvcc.
compile_steps() {
  local result=0 preset limit
  for preset in dev asan tsan cuda; do
    limit=40
    [ "$preset" != cuda ] || limit=200  # stream_test: every composition and the statistics, 150 s on the machine of the limit
    [ ! -f "build/$preset/.ninja_log" ] || python3 tests/support/slow_steps.py "build/$preset" "$limit" || result=1
  done
  return "$result"
}

# Prints the instruction sets that this machine runs, and tests the leaves for ARM in an emulator, which scripts/test skips if there is
# none.
run_leaves() {
  build/dev/tests/isa/leaf_digests &&
    ctest --test-dir build/dev --output-on-failure --no-tests=error -R '^isa\.arm'
}

# Examples with LibTorch, which scripts/test does not build if LibTorch is not installed.
train_with_libtorch() {
  scripts/bootstrap torch && cmake --preset dev -DGLOBALQ_BUILD_EXAMPLES=ON >/dev/null &&
    cmake --build --preset dev --target language_model step_times torch_trainer examples_torch_test &&
    ctest --test-dir build/dev --output-on-failure --no-tests=error \
      -R '^examples/(language_model|torch_trainer)|^examples_torch_test'
}
