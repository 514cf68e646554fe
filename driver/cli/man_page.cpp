#include "driver/cli/man_page.h"

#include <array>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "driver/core/exit_code.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

// Every variable CP_POOL_* that the sources read, and other variables that change what cp-pool does, each with a
// sentence.
constexpr auto kVariables = std::to_array<std::pair<std::string_view, std::string_view>>({
    // Variables that the user may set.
    {"CP_POOL_PLAN_STORE",
     "The folder in which GPU ranks keep the plans that cuDNN has built, or off. Default: "
     "$XDG_CACHE_HOME/cp-pool/cudnn-plans, else ~/.cache/cp-pool/cudnn-plans."},
    {"CP_POOL_PEER_COPIES",
     "off: GPU ranks do not write into each other's memory; NCCL carries everything, and ranks cannot share a GPU. "
     "NCCL_P2P_DISABLE=1 has only the first of these effects."},
    {"CP_POOL_HIDE_GPUS", "off: a GPU rank sees all GPUs of the machine, not its own alone."},
    {"CP_POOL_INJECT",
     "Faults for the ranks of a worker, separated by spaces, each as cp-pool-worker --inject takes it: "
     "KIND@RANK:PHASE[:CASE]."},
    {"CP_POOL_CALLS",
     "Modules, separated by colons, that are imported once for all ranks of calls, before these are forked."},
    {"CP_POOL_DEBUG_STREAM_DELAYS",
     "SEED or SEED:MICROSECONDS: random delays on the streams of GPU ranks, which show a missing wait."},
    {"CP_POOL_PYTHON", "The Python that tools/setup takes instead of /usr/bin/python3."},
    {"CP_POOL_OPT_",
     "Followed by the name of an option of run: its value if the command line does not give the option. "
     "CP_POOL_OPT_START_TIMEOUT is --start-timeout; a list has one value on each line; a flag is 1 or 0."},
    {"GTEST_TOTAL_SHARDS",
     "cp-pool run: the number of shards; GTEST_SHARD_INDEX says which --shard to run, counted from 0."},
    {"TEST_TOTAL_SHARDS",
     "The same with TEST_SHARD_INDEX, as Bazel sets them. The file TEST_SHARD_STATUS_FILE is created."},
    {"XML_OUTPUT_FILE", "cp-pool run: the file of --junit, as Bazel sets it."},
    {"TESTBRIDGE_TEST_ONLY",
     "cp-pool run: an expression as for -k, in addition to it; bazel test --test_filter sets it."},
    {"CUDA_VISIBLE_DEVICES", "The GPUs that may be used, as for every CUDA program."},
    {"OMP_NUM_THREADS", "Threads of a rank on the CPU; without it, their number depends on the size of the problem."},
    {"OMP_WAIT_POLICY",
     "active: threads of a rank spin while they wait. Without it they sleep, because they would take the cores from "
     "the other ranks."},
    {"GLOO_SOCKET_IFNAME",
     "The network interface over which CPU ranks exchange; default: loopback, and over several hosts that on which "
     "they reach cp-pool."},
    {"NCCL_SOCKET_IFNAME", "The same for GPU ranks on several hosts."},
    {"SLURM_JOB_NODELIST",
     "The hosts for --launcher, as Slurm sets them; their slots are in SLURM_TASKS_PER_NODE, SLURM_JOB_CPUS_PER_NODE "
     "or, for GPUs, SLURM_GPUS_ON_NODE."},
    {"OMPI_MCA_orte_default_hostfile", "The file of hosts, NAME slots=N on a line, for --launcher mpirun."},
    {"NO_COLOR", "Anything but empty: no colours on the terminal."},
    {"TERM", "dumb: no live line and no colours."},
    {"XDG_CACHE_HOME", "Where caches are kept instead of ~/.cache."},
    {"XDG_RUNTIME_DIR", "Where cp-pool serve has its socket, in cp-pool/NAME.sock; without it, in /tmp/cp-pool-UID."},
    {"LISTEN_FDS", "Set by systemd with LISTEN_PID: cp-pool serve takes the socket that it was given."},
    {"XDG_STATE_HOME",
     "Where cp-pool run keeps its records, cp-pool search what it finds, and cp-pool shell its history, instead of "
     "~/.local/state."},
    // Variables that cp-pool sets for every rank (docs/protocol.md).
    {"CP_POOL_PROTOCOL", "Set for a rank: the protocol versions that cp-pool speaks, MIN..MAX."},
    {"CP_POOL_DEVICE", "Set for a rank: cpu or cuda."},
    {"CP_POOL_SHARE_GPUS", "Set for a rank: on or off, whether ranks may share a GPU (--share-gpus)."},
    {"CP_POOL_START_TIMEOUT_MS", "Set for a rank: how long its pool has until it is ready (--start-timeout)."},
    {"CP_POOL_MASTER_FD", "Set for rank 0: the number of an inherited socket that listens on MASTER_PORT."},
    {"CP_POOL_TAG", "Set for a rank: the name of its pool, by which cp-pool finds its processes."},
    {"CP_POOL_LIFELINE",
     "Set for a rank that a launcher starts: where it reaches cp-pool, HOST:PORT,.. in the order in which it tries "
     "them. A rank that loses cp-pool ends itself with exit code 75."},
    {"CP_POOL_LIFELINE_TOKEN",
     "Set for a rank: the secret of its pool, by which cp-pool and rank 0 recognise the ranks."},
    // Variables that the tests read.
    {"CP_POOL_REQUIRE_GPU", "Tests of GPUs: how many GPUs there have to be; with fewer the tests fail."},
    {"CP_POOL_GPU_TEST_SECONDS", "tools/gpu_tests: how long one program may take."},
    {"CP_POOL_GPU_TEST_JOBS", "tools/gpu_tests: how many programs run at a time."},
    {"CP_POOL_FAULT_TABLE", "Test of faults: whole runs all combinations instead of some of them."},
    {"CP_POOL_PROPERTY_CASES", "Property test: how many random cases."},
    {"CP_POOL_PROPERTY_SEED", "Property test: which random cases."},
    {"CP_POOL_DIAGNOSIS_CASES", "Property test of the mask that a diagnosis sees: how many random cases."},
    {"CP_POOL_DIAGNOSES", "Test of diagnosed mutants: the file that it writes its answers to."},
    {"CP_POOL_WRONG", "The mistake that the deliberately wrong adapter of tests/diagnosis makes."},
    {"CP_POOL_SOAK_CASES", "Soak test: how many cases."},
    {"CP_POOL_SOAK_SEED", "Soak test: which cases and faults."},
});

// Returns a line of text as roff takes it: backslashes and hyphens are literal, and roff reads no line as a request.
std::string escape(std::string_view text) {
  std::string out;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) out = "\\&";
  for (const char c : text) {
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '\'' ? "\\(aq" : std::string(1, c);
  }
  return out;
}

std::string option_entry(const CLI::Option& option) {
  std::string head = option.get_name(/*positional=*/false, /*all_options=*/true);
  if (option.get_positional()) head = option.get_name(/*positional=*/true);
  std::string entry = fmt::format(".TP\n\\fB{}\\fR", escape(head));
  if (!option.get_type_name().empty() && option.get_items_expected_max() > 0 && !option.get_positional()) {
    entry += fmt::format(" \\fI{}\\fR", escape(option.get_type_name()));
  }
  entry += '\n' + escape(option.get_description());
  if (!option.get_default_str().empty()) entry += fmt::format(" (default: {})", escape(option.get_default_str()));
  return entry + ".\n";
}

std::string option_list(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text += option_entry(*option);
  }
  return text;
}

// Returns text that roff prints as it is, without filling.
std::string literal(const std::string& text) {
  std::string out = ".nf\n";
  for (const std::string_view line : protocol::lines_of(text)) out += line.empty() ? ".sp\n" : escape(line) + '\n';
  return out + ".fi\n";
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(".TH CP\\-POOL 1 \"\" \"cp\\-pool {}\"\n", CP_POOL_VERSION);
  text += ".SH NAME\ncp\\-pool \\- test service for context\\-parallel attention\n";
  text += ".SH SYNOPSIS\n";
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) {
    text += fmt::format(".B cp\\-pool {}\n.RI [ OPTIONS ]\n", escape(command->get_name()));
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) text += fmt::format(".I {}\n", escape(option->get_name(true)));
    }
    text += ".br\n";
  }
  text += ".SH DESCRIPTION\n" + escape(app.get_description()) + '\n';
  text += ".SH OPTIONS\n" + option_list(app);
  for (const CLI::App* command : commands) {
    text += fmt::format(".SH CP\\-POOL {}\n{}.\n", escape(command->get_name()), escape(command->get_description()));
    text += option_list(*command) + literal(command->get_footer());
  }
  text += ".SH EXAMPLES\n" + literal(app.get_footer());
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : kVariables) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escape(name), escape(meaning));
  }
  return text + ".SH EXIT STATUS\n" + literal(exit_code_help());
}

}  // namespace cp_pool
