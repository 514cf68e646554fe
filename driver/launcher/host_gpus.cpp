#include "driver/launcher/host_gpus.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool {

namespace {

// Whether the name is safe in a shell script: letters, digits, dots, hyphens, underscores, and the colons of an
// address.
bool is_plain(const std::string& name) {
  return std::ranges::all_of(name, [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  });
}

}  // namespace

std::vector<std::string> on_gpus_of_slots(const std::vector<HostShare>& hosts, std::vector<std::string> worker) {
  std::string choices;
  std::string names;
  for (const HostShare& host : hosts) {
    if (host.slots.empty() || !is_plain(host.host)) return worker;
    std::vector<int> fields;  // field numbers of cut, from 1
    fields.reserve(host.slots.size());
    for (const int slot : host.slots) fields.push_back(slot + 1);
    const std::string short_name = host.host.substr(0, host.host.find('.'));
    const bool is_address = host.host.find_first_not_of("0123456789.") == std::string::npos;
    const std::string patterns =
        is_address || short_name == host.host ? host.host : fmt::format("{}|{}", host.host, short_name);
    choices +=
        fmt::format(" {}) own={} fields={}; break;;", patterns, fmt::join(host.slots, ","), fmt::join(fields, ","));
    names += (names.empty() ? "" : ", ") + host.host;
  }
  if (choices.empty()) return worker;
  const std::string script = fmt::format(
      "own=; full=$(uname -n); for name in \"$SLURMD_NODENAME\" \"$full\" \"${{full%%.*}}\" $(hostname -I "
      "2>/dev/null); "
      "do case \"$name\" in{} esac; done; "
      "if [ -z \"$own\" ]; then echo \"cp-pool: $full is none of the hosts {}\" >&2; exit 1; fi; "
      "if [ -n \"$CUDA_VISIBLE_DEVICES\" ]; then own=$(echo \"$CUDA_VISIBLE_DEVICES\" | cut -d, -f\"$fields\"); fi; "
      "export CUDA_VISIBLE_DEVICES=\"$own\"; exec \"$@\"",
      choices, names);
  std::vector<std::string> out{"sh", "-c", script, "sh"};
  out.insert(out.end(), std::make_move_iterator(worker.begin()), std::make_move_iterator(worker.end()));
  return out;
}

}  // namespace cp_pool
