# Functions for the scripts of this folder, which source this file: messages, failures and timed parts.

say() { printf '== %s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
  printf '== %s: FAILED: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Runs a command. If it fails, names it and exits.
run() {
  local status=0
  "$@" || status=$?
  ((status == 0)) || die "exit $status from: $*"
}

part_times=()

# part NAME COMMAND...: runs a part of the script, says when it begins, and records how long it took.
part() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  run "$@"
  part_times+=("$name $((SECONDS - start)) s")
}

# all_parts_passed: says how long each part and the whole script took.
all_parts_passed() {
  local times
  times=$(printf ', %s' "${part_times[@]}")
  say "all passed in $SECONDS s: ${times:2}"
}
