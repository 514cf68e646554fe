#include "driver/ranks/launcher.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/mapped.h"

namespace cp_pool {

namespace {

using Words = std::vector<std::string>;

int nodes_of(const LaunchPlan& launch) {
  return std::max<int>(static_cast<int>(launch.hosts.size()), 1);
}

int ranks_per_node(const LaunchPlan& launch) {
  return launch.hosts.empty() ? launch.world_size : std::ranges::max(mapped(launch.hosts, &HostShare::ranks));
}

std::string join_hosts(const LaunchPlan& launch) {
  return fmt::format("{}", fmt::join(mapped(launch.hosts, &HostShare::host), ","));
}

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Ranks are not bound to cores, because mpirun would bind the ranks of every pool to the same first cores.
Words mpirun_words(const LaunchPlan& launch) {
  Words out{"mpirun", "--bind-to", "none", "--oversubscribe", "-np", std::to_string(launch.world_size)};
  if (launch.as_root) out.emplace_back("--allow-run-as-root");
  if (!launch.hosts.empty()) {
    const auto text = [](const HostShare& share) { return fmt::format("{}:{}", share.host, share.ranks); };
    append(out, {"--host", fmt::format("{}", fmt::join(mapped(launch.hosts, text), ",")), "--map-by", "slot"});
  }
  for (const std::string& name : launch.variables) append(out, {"-x", name});
  append(out, launch.worker);
  return out;
}

// --overlap: pools share the allocation as the driver has placed them. --output=0: only rank 0 writes messages to
// stdout, and output of another rank could end up inside one of its lines. --kill-on-bad-exit: the step ends when one
// of its ranks has died.
Words srun_words(const LaunchPlan& launch) {
  Words out{"srun",
            fmt::format("--ntasks={}", launch.world_size),
            "--input=0",
            "--output=0",
            "--error=all",
            "--overlap",
            "--cpu-bind=none",
            "--export=ALL",
            "--kill-on-bad-exit=1"};
  if (!launch.name.empty()) out.push_back("--job-name=" + launch.name);
  if (!launch.hosts.empty()) {
    append(out,
           {fmt::format("--nodes={}", nodes_of(launch)), fmt::format("--ntasks-per-node={}", ranks_per_node(launch)),
            fmt::format("--nodelist={}", join_hosts(launch)), "--distribution=block"});
  }
  append(out, launch.worker);
  return out;
}

Words torchrun_words(const LaunchPlan& launch) {
  Words out{"torchrun",         "--standalone", "--nnodes=1", fmt::format("--nproc-per-node={}", launch.world_size),
            "--max-restarts=0", "--no-python"};
  append(out, launch.worker);
  return out;
}

// --- The template of a custom launcher ---
constexpr std::string_view kWorker = "{worker}";

struct Placeholder {
  std::string_view name;
  std::string (*value)(const LaunchPlan&);
};
const std::array kPlaceholders{
    Placeholder{"world_size", [](const LaunchPlan& launch) { return std::to_string(launch.world_size); }},
    Placeholder{"nodes", [](const LaunchPlan& launch) { return std::to_string(nodes_of(launch)); }},
    Placeholder{"ranks_per_node", [](const LaunchPlan& launch) { return std::to_string(ranks_per_node(launch)); }},
    Placeholder{"hosts", join_hosts},
    Placeholder{"rendezvous", [](const LaunchPlan& launch) { return launch.rendezvous; }},
    // A word that is only {worker} becomes the words of the command line (custom_words). Within a longer word it
    // becomes the command line as quoted for a shell.
    Placeholder{"worker", [](const LaunchPlan& launch) {
                  std::string out;
                  for (const std::string& word : launch.worker) {
                    std::string quoted;
                    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
                    out += fmt::format("{}'{}'", out.empty() ? "" : " ", quoted);
                  }
                  return out;
                }}};

// Replaces every {NAME} in the word; {{ and }} stand for a brace. Throws std::invalid_argument.
std::string fill(std::string_view word, const LaunchPlan& launch) {
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if ((c == '{' || c == '}') && word.substr(i + 1).starts_with(c)) {
      out += c;
      ++i;
    } else if (c == '}') {
      throw std::invalid_argument(fmt::format("'{}' has a '}}' without a '{{'; write a literal brace twice", word));
    } else if (c == '{') {
      const std::size_t end = word.find('}', i);
      const std::string_view name = word.substr(i + 1, end == std::string_view::npos ? end : end - i - 1);
      const auto* const found = std::ranges::find(kPlaceholders, name, &Placeholder::name);
      if (end == std::string_view::npos) {
        throw std::invalid_argument(fmt::format("'{}' has a '{{' without a '}}'; write a literal brace twice", word));
      }
      if (found == kPlaceholders.end()) {
        throw std::invalid_argument(
            fmt::format("there is no {{{}}}: a launcher has {{world_size}}, {{nodes}}, {{ranks_per_node}}, {{hosts}}, "
                        "{{rendezvous}} and {{worker}}; write a literal brace twice",
                        name));
      }
      out += found->value(launch);
      i = end;
    } else {
      out += c;
    }
  }
  return out;
}

Words custom_words(const Words& words, const LaunchPlan& launch) {
  Words out;
  for (const std::string& word : words) {
    if (word == kWorker) {
      append(out, launch.worker);
    } else {
      out.push_back(fill(word, launch));
    }
  }
  return out;
}

// Whether the name is safe in a shell script: letters, digits, dots, hyphens, underscores, and the colons of an
// address.
bool is_plain(const std::string& name) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  return name.find_first_not_of(kPlain) == std::string::npos;
}

}  // namespace

std::string name_of(const Launcher& launcher) {
  if (launcher.kind != LauncherKind::custom) return std::string{name_of(launcher.kind)};
  return std::filesystem::path(launcher.words.front()).filename().string();
}

std::vector<std::string> launch_words(const Launcher& launcher, const LaunchPlan& launch) {
  if (launcher.kind == LauncherKind::mpirun) return mpirun_words(launch);
  if (launcher.kind == LauncherKind::srun) return srun_words(launch);
  if (launcher.kind == LauncherKind::torchrun) return torchrun_words(launch);
  return launcher.kind == LauncherKind::custom ? custom_words(launcher.words, launch) : launch.worker;
}

std::string template_error(const std::vector<std::string>& words) {
  bool has_worker = false;
  try {
    for (const std::string& word : words) {
      fill(word, {});
      has_worker = has_worker || word.find(kWorker) != std::string::npos;
    }
  } catch (const std::invalid_argument& wrong) {
    return wrong.what();
  }
  if (words.empty() || words.front() == kWorker) return "it names no program that starts the ranks";
  return has_worker ? "" : "it has no {worker}, where the worker's command line is to stand";
}

const std::vector<std::string>& rank_variables() {
  static const std::vector<std::string> names{"RANK",
                                              "WORLD_SIZE",
                                              "LOCAL_RANK",
                                              "LOCAL_WORLD_SIZE",
                                              "GROUP_RANK",
                                              "OMPI_COMM_WORLD_RANK",
                                              "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE",
                                              "SLURM_PROCID",
                                              "SLURM_LOCALID",
                                              "CP_POOL_MASTER_FD"};
  return names;
}

std::vector<int> slots_of(const std::vector<HostShare>& hosts) {
  return mapped(hosts, &HostShare::ranks);
}

std::vector<HostShare> place(int ranks, const std::vector<int>& slots, const std::vector<HostShare>& hosts) {
  std::vector<HostShare> shares;
  shares.reserve(hosts.size());
  int begin = 0;
  for (const HostShare& host : hosts) {
    const int end = begin + host.ranks;
    HostShare& share = shares.emplace_back(HostShare{.host = host.host, .ranks = host.ranks});
    for (const int slot : slots) {
      if (slot >= begin && slot < end) share.slots.push_back(slot - begin);
    }
    if (!slots.empty()) share.ranks = static_cast<int>(share.slots.size());
    begin = end;
  }
  int left = ranks;
  for (HostShare& share : shares) {
    share.ranks = std::min(share.ranks, left);
    left -= share.ranks;
  }
  std::erase_if(shares, [](const HostShare& share) { return share.ranks == 0; });
  for (std::size_t i = 0; left > 0 && !shares.empty(); i = (i + 1) % shares.size(), --left) ++shares[i].ranks;
  return shares;
}

std::vector<std::string> restrict_gpus(const std::vector<HostShare>& hosts, std::vector<std::string> worker) {
  std::string choices;
  std::string names;
  for (const HostShare& host : hosts) {
    if (host.slots.empty() || !is_plain(host.host)) return worker;
    const std::vector<int> fields = mapped(host.slots, [](int slot) { return slot + 1; });  // of cut, from 1
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
