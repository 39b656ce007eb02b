#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and times globalq's kernels on this machine's GPU, with programs that scripts/device-kit made elsewhere.
#
#   ./run [RESULTS [first|second|third|all [STEP...]]]    RESULTS: where logs and numbers go (results); STEP: only these
#
# first   (at most 340 s): does it run, the bits of the host, throughput, memcheck
# second  (at most 260 s): counters of ncu, other libraries' kernels, several NCCL ranks on one GPU, racecheck, initcheck
# third   (at most 240 s): other forms of kernels timed in turn with these, PyTorch with gradients on the GPU
#
# It needs a driver and a C++ library of the machine that made the kit or newer; no toolkit and no network. NCCL is searched, also in
# Python's packages. What is not found is left out. Whatever ends it, RESULTS has what was done until then: steps.jsonl (one line a step),
# *.json of the benchmarks, logs.tar.gz. At most 8 files. Exits with 1 when a step failed.
set -uo pipefail -f
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-results} part=${2:-all} only=" ${*:3} " later=""
left=" $(cat "$here/left" 2>/dev/null) " # steps that failed or did not run when they were last tried
mkdir -p "$results"
results=$(cd "$results" && pwd)
case $part in first) all=340 ;; second) all=260 ;; third) all=240 ;; *) all=820 ;; esac

work=$(mktemp -d)
logs=$work/logs
mkdir "$logs"
unpacked() { # FILE.xz: to standard output
  if command -v xz >/dev/null; then xz -dc "$1"; else
    python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"
  fi
}
unpacked "$here/programs.tar.xz" | tar -C "$work" -xf - || exit 1
cd "$work" || exit 1

# NCCL: the linker's, or one of a Python package
nccl=$(ldconfig -p 2>/dev/null | awk '$1 == "libnccl.so.2" { print $NF; exit }')
[ -n "$nccl" ] || nccl=$(find /opt /usr/local /usr/lib /root -name libnccl.so.2 -print -quit 2>/dev/null)
export LD_LIBRARY_PATH=$work${nccl:+:$(dirname "$nccl")}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for folder in /usr/local/nvidia/lib64 /usr/local/cuda/lib64; do
  [ ! -d "$folder" ] || LD_LIBRARY_PATH+=:$folder
done
PATH+=:/usr/local/cuda/bin:/usr/local/nvidia/bin:/opt/nvidia/nsight-compute/$(ls /opt/nvidia/nsight-compute 2>/dev/null | tail -n 1)
export CUDA_MODULE_LOADING=LAZY NCCL_DEBUG=WARN

status=0
keep() { (flock 9; tar -C "$work" -czf "$results/logs.tar.gz" logs 2>/dev/null) 9>"$work/lock"; }  # steps run side by side
trap 'keep; rm -rf "$work"' EXIT
trap 'exit 1' TERM INT
note() { # NAME SECONDS RESULT
  printf '{"step": "%s", "seconds": %d, "at": %d, "result": "%s"}\n' "$1" "$2" "$SECONDS" "$3" >>"$results/steps.jsonl"
  printf '%-14s %4d s  %s\n' "$1" "$2" "$3"
}
# wanted NAME: whether a step is asked for and did not run before
wanted() { { [ "$only" = "  " ] || [[ $only == *" $1 "* ]]; } && [[ $later != *" $1 "* ]]; }
# step NAME SECONDS COMMAND...
step() {
  local name=$1 limit=$2 start=$SECONDS left=$((all - SECONDS)) code=0
  shift 2
  wanted "$name" || return 0
  [ "$left" -ge "$limit" ] || limit=$left
  if [ "$limit" -le 0 ]; then
    note "$name" 0 "no time left"
    return
  fi
  timeout --kill-after=5 "$limit" "$@" >"$logs/$name.log" 2>&1 || code=$?
  [ "$code" != 0 ] || ! grep -qs 'PASSED  \] 0 tests' "$logs/$name.log" || code="no tests"
  case $code in
    0) code=passed ;;
    77) code=skipped ;;
    124 | 137) code="ended after $limit s" ;;
  esac
  [ "$code" = passed ] || { [ "$code" != skipped ] && touch "$work/failed"; tail -n 12 "$logs/$name.log"; }
  note "$name" $((SECONDS - start)) "$code"
  keep
}
# has PROGRAM STEP...: whether the program of these steps is there
has() {
  local program=$1 name
  shift
  ! command -v "$program" >/dev/null || return 0
  for name; do ! wanted "$name" || note "$name" 0 "no $program"; done
  return 1
}
tests() { # FILTER
  local program=stream_device_test
  [[ $1 != *OnDevice* && $1 != MeanOf* ]] || program=mean_device_test
  echo "./$program --gtest_filter=$1"
}
bench() { # N SECONDS: one invocation of each benchmark: nine samples of at least 2 ms, set up once
  step "bench_$1" "$2" ./globalq_device_bench "--benchmark_filter=/n:$1/" --benchmark_min_time=1e-9 --benchmark_out_format=json \
    "--benchmark_out=$results/device_$1.json"
}

first() {
  step gpu 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw --format=csv
  step libraries 20 bash -c 'ldd --version | head -n 1; cat /etc/os-release | head -n 2; for p in ./*_test ./*_bench; do echo $p; ldd $p; done; df -h /dev/shm; nproc; free -g;
    ! ldd *_test *_bench | grep "not found"'
  step smoke 60 $(tests 'CodecOnDevice.*:MeanOnDevice.has*')
  if [ "$only" = "  " ] && [ -e "$work/failed" ]; then # the rest would only spend the machine's time: mend it and run this again
    note stopped 0 "gpu, libraries or smoke failed"
    return
  fi
  bench 16777216 40
  # correctness: programs side by side
  step capture 90 $(tests 'MeanOnDevice.*:MeanOfRanks.*') &
  step processes 60 $(tests 'MeanOfProcesses.*') &
  step lengths 170 $(tests 'Stream.same_bits_at_every_awkward*') &
  step schedules 170 $(tests 'Stream.*:-Stream.same_bits_at_every_awkward*') &
  step codecs 170 $(tests 'StreamVectorCodec.*:StreamSparse.*') &
  step nccl 150 ./nccl_device_test &
  [ ! -x device_shapes_test ] || step shapes 120 ./device_shapes_test &
  wait
  bench 268435456 110
  bench 1048576 40
  if has compute-sanitizer memcheck; then
    step memcheck 80 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
      $(tests 'Stream.zeros*:Stream.a_value*:StreamVectorCodec.what_has*:StreamSparse.every_code*')
  fi
}

second() {
  if has ncu ncu; then
    step ncu 90 ncu --clock-control none --csv --page raw --launch-count 60 --kernel-name-base demangled \
      --kernel-name 'regex:thread_of_values|team_of_items|plain_sum|DeviceReduce' \
      --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,smsp__inst_executed.sum,sm__warps_active.avg.pct_of_peak_sustained_active,lts__t_sectors.sum,l1tex__data_bank_conflicts_pipe_lsu.sum,launch__registers_per_thread,launch__occupancy_limit_registers \
      --log-file "$results/ncu.csv" ./globalq_device_bench --check 67108864 \
      '--benchmark_filter=device/(norm|norm_and_encode|encode|decode|decode_add|reduce)/.*'
  fi
  [ ! -e "$here/peers.py" ] || ! has python3 peers || step peers 80 python3 "$here/peers.py" "$results/peers.json" 70
  [ ! -x stream_probe ] || step streams 45 ./stream_probe
  [ ! -x ipc_probe ] || step ipc 30 ./ipc_probe 2
  if has compute-sanitizer racecheck initcheck synccheck; then
    for tool in racecheck initcheck synccheck; do
      step "$tool" 60 compute-sanitizer --tool "$tool" --error-exitcode 1 $(tests 'Stream.zeros*:StreamVectorCodec.what_has*') &
    done
    wait
  fi
  if [ -e "$here/libnccl230.so.xz" ]; then # several ranks on one GPU: NCCL 2.30, code of other GPUs removed
    mkdir -p several && unpacked "$here/libnccl230.so.xz" >several/libnccl.so.2
    local several="env LD_LIBRARY_PATH=$work/several:$LD_LIBRARY_PATH NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4 CUDA_DEVICE_MAX_CONNECTIONS=32
      CUDA_MODULE_LOADING=EAGER"
    step nccl_several 80 $several ./nccl_device_test '--gtest_filter=-*a_wait_ends*:*a_receive_of_another_size*'
    # apart: the aborted kernel ends with an illegal memory access, which stays with the process
    step nccl_ends 40 $several ./nccl_device_test '--gtest_filter=*a_wait_ends*'
  fi
}

third() {
  # other_NAME: the benchmark of another commit, with the kernels whose names other_kernels has
  local turn program
  set +f
  local others=(other_*_bench)
  set -f
  if [ -x "${others[0]}" ]; then
    for turn in 1 2; do
      for program in globalq_device_bench "${others[@]}"; do
        step "${program}_$turn" 60 "./$program" "--benchmark_filter=$(cat other_kernels)" --benchmark_min_time=1e-9 \
          --benchmark_out_format=json "--benchmark_out=$logs/${program}_$turn.json"
      done
    done
  fi
  set +f
  local wheel=("$here"/*.whl)
  set -f
  if [ -e "${wheel[0]}" ] && has python3 install ddp; then
    step install 40 python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "${wheel[0]}"
    step ddp 80 env PYTHONPATH="$work/site" OMP_NUM_THREADS=4 python3 "$here/ddp_gpu.py" "$results/ddp.json" 16777216
  fi
}

# in_order PART: what an earlier day left comes first
in_order() {
  if [ "$only" = "  " ] && [ "$left" != "  " ]; then
    only=$left
    "$1"
    only="  " later=$left
  fi
  "$1"
}
case $part in
  first | second | third) in_order "$part" ;;
  *) in_order first && in_order second && in_order third ;;
esac
timeout 20 nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv >"$logs/gpu_after.log" 2>&1
[ ! -e "$work/failed" ] || status=1
printf 'kit of %s\n' "$(cat "$here/commit")"
exit "$status"
