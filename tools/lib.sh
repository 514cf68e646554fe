# Sourced by the scripts of this folder: how they speak and how they fail.

say() { printf '== %s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
  printf '== %s: FAILED: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Runs a command; on failure says which one and stops.
run() {
  local status=0
  "$@" || status=$?
  ((status == 0)) || die "exit $status from: $*"
}

part_times=()

# part NAME COMMAND...: runs a part of the script, says when it begins, and remembers how long it took.
part() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  run "$@"
  part_times+=("$name $((SECONDS - start)) s")
}

# all_parts_passed: says how long each part took, and all of them.
all_parts_passed() {
  local times
  times=$(printf ', %s' "${part_times[@]}")
  say "all passed in $SECONDS s: ${times:2}"
}
