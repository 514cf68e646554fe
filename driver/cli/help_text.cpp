#include "driver/cli/help_text.h"

#include <fmt/format.h>

#include "driver/cli/exit_code.h"

namespace cp_pool {

std::string main_footer() {
  return "Examples:\n"
         "  cp-pool run                                    the matrix 'quick' on CPU ranks\n"
         "  cp-pool run --matrix te-flash --filter 'comm=p2p & layout=thd' --junit report.xml\n"
         "  cp-pool list --matrix te-flash te-fused --count\n"
         "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad\n"
         "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad\n"
         "  cp-pool run --help                             every option of a command\n";
}

std::string run_footer() {
  return "Durations: 90 (seconds), 90s, 1500ms, 2m, 1h.\n\n"
         "Examples:\n"
         "  cp-pool run --matrix te-flash te-fused --size small --timeout 2m\n"
         "  cp-pool run --matrix mine.json --filter 'dtype=bf16 & heads>=8' --filter 'mine/*/a2a/*'\n"
         "  cp-pool run --filter 'tag=essential' --junit report.xml --events events.jsonl --no-progress\n"
         "  cp-pool run -k 'p2p and not thd' -x            as with pytest: names, and stop at the first failure\n"
         "  cp-pool run --matrix te-flash --filter te-flash/cp_2_0/p2p/cp2/thd/bf16/pad      rerun a failure\n"
         "  cp-pool run --matrix te-flash --rerun-failed events.jsonl          rerun all of them\n";
}

std::string submit_footer() {
  return "Examples:\n"
         "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad\n"
         "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad --set comm=a2a --set cp_size=4\n"
         "  cp-pool submit case.json --json\n"
         "  generate-cases | cp-pool submit - --json | jq -c '[.number, .id, .outcome]'\n"
         "  cp-pool list --json | jq -c '.[]' | cp-pool submit - --events events.jsonl\n"
         "  cp-pool submit --rerun-failed events.jsonl     what failed of these\n";
}

std::string list_footer() {
  return "Examples:\n"
         "  cp-pool list --matrix te-flash --filter '*/thd/*'\n"
         "  cp-pool list --matrix te-flash te-fused --size full --count\n"
         "  cp-pool list --json | jq -r '.[] | select(.world_size == 4).id'\n";
}

std::string report_footer() {
  return "Examples:\n"
         "  cp-pool report events.jsonl --html report.html                     of a run that was killed\n"
         "  cp-pool report job-*/events.jsonl --junit all.xml --html all.html  of the shards of a CI\n";
}

std::string explain_footer() {
  return "Examples:\n"
         "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad\n"
         "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad --size full --set comm=a2a\n"
         "  cp-pool explain case.json\n";
}

std::string doctor_footer() {
  return "Examples:\n"
         "  cp-pool doctor                                 of the worker beside this program\n"
         "  cp-pool doctor --worker 'python3 my_worker.py'\n";
}

std::string help_footer() {
  return "Examples:\n"
         "  cp-pool help run                               as cp-pool run --help\n";
}

std::string conformance_footer() {
  return "A line a rule: its verdict, what was seen, and a hint unless it is ok.\n"
         "  ok        the worker does it\n"
         "  BROKEN    the protocol asks for it, and the worker does something else\n"
         "  absent    the worker may leave it out, and does\n"
         "  untested  this worker gives no way to try it; faults need one that obeys CP_POOL_INJECT\n"
         "The exit code is 0 if no rule is broken, 100 if one is, 96 if the worker never got ready.\n\n"
         "Examples:\n"
         "  cp-pool conformance --worker docs/examples/minimal_worker.py\n"
         "  cp-pool conformance --worker 'python3 my_worker.py' --timeout 1m | grep -v '^ok'\n";
}

std::string exit_code_help() {
  std::string text = "Exit codes, the first that applies:\n";
  for (const ExitCodeMeaning& entry : exit_codes()) {
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(entry.code), entry.meaning);
  }
  return text;
}

}  // namespace cp_pool
