// cp-pool with the real worker, for behaviour that only real ranks have.
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {
namespace {

struct Outputs {
  std::map<std::string, std::string> hashes;  // the output hashes of all ranks, by case ID
  int generations = 0;                        // number of pools that were used
};

Outputs outputs_of(const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  const std::string events = (folder / "events.jsonl").string();
  const Words words = {CP_POOL_PROGRAM, "run", "--filter", "cp_size=2 & model=causal", "--events", events};
  EXPECT_THAT(run_to_end(with(words, more)), exits(0));
  Outputs outputs;
  for (const auto& event : events_in(events, "case_finished")) {
    std::string& hashes = outputs.hashes[event["id"]];
    for (const auto& rank : event["ranks"]) hashes += rank["output_hash"].get<std::string>() + " ";
    outputs.generations = std::max(outputs.generations, event["pool"]["generation"].get<int>());
  }
  return outputs;
}

TEST(RealWorker, AnIsolatedRunGivesTheSameOutputBitsAsAPooledOneInAnyOrder) {
  const Outputs pooled = outputs_of({});
  ASSERT_GE(pooled.hashes.size(), 3U);
  EXPECT_EQ(pooled.generations, 1);
  for (const auto& [id, hashes] : pooled.hashes) EXPECT_GT(hashes.size(), 4U) << id;

  const Outputs isolated = outputs_of({"--isolate"});
  EXPECT_EQ(isolated.generations, static_cast<int>(pooled.hashes.size()));
  EXPECT_EQ(isolated.hashes, pooled.hashes);
  EXPECT_EQ(outputs_of({"--order", "reverse"}).hashes, pooled.hashes);
}

TEST(RealWorker, SIGUSR1SaysWhereEachRankStandsAndTheRunGoesOn) {
  const TemporaryFolder folder;
  const std::string events = (folder / "events.jsonl").string();
  Program program{{CP_POOL_PROGRAM, "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--events", events, "--worker",
                   "cp-pool-worker --inject hang@1:before"}};
  // Waits until rank 0 waits for rank 1.
  const auto waits = [&events] {
    std::ifstream lines{events};
    for (std::string line; std::getline(lines, line);) {
      if (lines.eof()) break;  // the last line is not whole yet
      const auto event = nlohmann::json::parse(line);
      if (event["type"] != "case_progress" || !event.contains("ranks")) continue;
      if (event["ranks"].at(0).contains("operation")) return event["ranks"];
    }
    return nlohmann::json{};
  };
  nlohmann::json ranks;
  while (program.running() && (ranks = waits()).is_null()) {
    if (has_text(events, "case_started")) program.signal(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // pause between two looks
  }
  program.signal(SIGINT);
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 130) << done.out << done.err;
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0]["phase"], "forward");
  EXPECT_EQ(ranks[1]["phase"], "begin");
  EXPECT_THAT(done.err, ::testing::HasSubstr("cp-pool: status:   rank 0: in forward for "));
  EXPECT_THAT(done.err, ::testing::HasSubstr("cp-pool: status:   rank 1: in begin for "));
}

// The launcher starts ranks on this host. It ends when the file is there, and leaves the ranks behind.
TEST(RealWorker, ALauncherThatEndsBeforeItsRanksLeavesRanksThatAreNamed) {
  const TemporaryFolder folder;
  const std::string go = (folder / "go").string();
  write_file(folder / "launch",
             "exec 3<&0\n"
             "for rank in 1 0; do\n"
             "  export RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2\n"
             "  export MASTER_ADDR=${1%:*} MASTER_PORT=${1##*:}\n"
             "  if [ $rank = 0 ]; then \"$2\" --inject hang@1:before <&3 & else \"$2\" --inject hang@1:before & fi\n"
             "done\n"
             "while ! [ -e '" +
                 go + "' ]; do sleep 0.05; done\n");
  const std::string events = (folder / "events.jsonl").string();
  Program program{{CP_POOL_PROGRAM, "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--events", events, "--worker",
                   CP_POOL_WORKER, "--grace", "100ms", "--launcher",
                   "sh '" + (folder / "launch").string() + "' {rendezvous} {worker}"}};
  while (program.running() && !has_text(events, "case_progress")) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  write_file(go, "");
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 100) << done.out << done.err;
  // On a busy machine a rank may be late by half a heartbeat; then it is named as silent.
  EXPECT_THAT(done.out,
              ::testing::ContainsRegex("sh died: exit 0; (ranks 0, 1 are still connected|nothing has been heard "
                                       "of rank)"));
}

// The other threads of the rank still wait for work, and must not delay its end.
TEST(RealWorker, ARankThatCannotConnectSaysWhyAtOnce) {
  const std::string worker = "sh -c 'test \"$RANK\" = 1 && ulimit -n 10; exec \"" CP_POOL_WORKER "\"'";
  EXPECT_THAT(run_to_end({CP_POOL_PROGRAM, "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--worker", worker,
                          "--start-timeout", "60s"}),
              exits(96, out(::testing::HasSubstr("rank 1 died: exit 1"), ::testing::HasSubstr("Too many open files"))));
}

TEST(RealWorker, ARankWithABadCommandLineSaysWhatIsWrong) {
  for (const auto& [arguments, message] : std::map<std::string, std::string>{
           {"--inject throw", "--inject \"throw\": expected KIND@RANK:PHASE[:CASE]"}, {"--speed", "--speed"}}) {
    const Finished done = run_to_end({CP_POOL_PROGRAM, "run", "--filter", "quick/causal/p2p/cp2/bshd/fp32", "--worker",
                                      "cp-pool-worker " + arguments});
    EXPECT_EQ(done.exit_code, 96) << done.out;
    // Either rank may die first.
    EXPECT_THAT(done.out,
                ::testing::ContainsRegex("rank [01] died: exit 2.*; last words of rank [01]: cp-pool-worker: "));
    EXPECT_THAT(done.out, ::testing::HasSubstr(message));
  }
}

TEST(RealWorker, TakesTimesThatALaterRunIsComparedWith) {
  const TemporaryFolder folder;
  const std::string before = (folder / "before.jsonl").string();
  const std::string junit = (folder / "junit.xml").string();
  const auto run = [&](const std::vector<std::string>& more) {
    const Words words = {CP_POOL_PROGRAM,      "run",    "--matrix", "perf",     "--filter",
                         "model=b2_s4096_h12", "--mode", "perf",     "--warmup", "1",
                         "--iterations",       "3",      "--device", "cpu"};
    return run_to_end(with(words, more));
  };
  const Finished first = run({"--events", before, "--junit", junit});
  ASSERT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_THAT(first.out, ::testing::HasSubstr("median, min and max of 3 after 1 to warm up\n"));
  EXPECT_THAT(read_file(junit), ::testing::HasSubstr("[[PROPERTY|perf_efficiency="));

  std::map<std::string, nlohmann::json> figures;
  for (const auto& event : events_in(before, "case_finished")) figures[event["id"]] = event["perf"];
  EXPECT_EQ(figures.size(), 6U);  // two layouts (bshd, thd) with p2p, all_gather and a2a
  for (const auto& [id, perf] : figures) {
    EXPECT_GT(perf["min_ms"].get<double>(), 0) << id;
    EXPECT_LE(perf["min_ms"].get<double>(), perf["ms"].get<double>()) << id;
    EXPECT_LE(perf["ms"].get<double>(), perf["max_ms"].get<double>()) << id;
    EXPECT_DOUBLE_EQ(perf["efficiency"].get<double>(),
                     perf["one_rank_ms"]["median"].get<double>() / (2 * perf["ms"].get<double>()))
        << id;
    EXPECT_EQ(perf["ranks"].size(), 2U) << id;
    EXPECT_GT(perf["bytes_sent"].get<std::int64_t>(), 0) << id;
  }
  // The worker counts these bytes: K and V of a rank's 32 tokens, and as many gradients, all in 16 bits.
  EXPECT_EQ(figures["perf/b2_s4096_h12/p2p/cp2/bshd/bf16"]["bytes_sent"], 2 * 32 * 2 * (128 + 128) * 2);

  EXPECT_THAT(run({"--baseline", before, "--max-ratio", "1e6", "--trace", (folder / "traces").string()}),
              exits(0, out(::testing::HasSubstr("6 of 6 cases in both"))));
  for (const char* who : {"rank0", "rank1", "alone"}) {
    const std::string trace = fmt::format("traces/perf__b2_s4096_h12__p2p__cp2__bshd__bf16.{}.json", who);
    EXPECT_TRUE(nlohmann::json::accept(read_file(folder / trace))) << trace;
  }
  EXPECT_THAT(run({"--baseline", before, "--max-ratio", "1e-6"}),
              exits(100, last_line(::testing::StartsWith("6 expanded = 0 pass + 6 fail, "))));
  EXPECT_THAT(run({"--baseline", before, "--size", "full"}),
              exits(94, err(::testing::HasSubstr("seqlen_q 32 there and 4096 here (6 of 6 cases differ)"))));
  EXPECT_THAT(run({"--baseline", (folder / "none").string()}),
              exits(94, err(::testing::HasSubstr("cannot read the baseline"))));
}

// Ranks inherit the limit on file sizes, and must survive it.
TEST(RealWorker, DumpsThatMayNotGrowAreNamedOnceAndEveryAnswerStands) {
  const TemporaryFolder folder;
  const std::string run = fmt::format(
      "ulimit -f 1; exec '{}' run --filter 'cp_size=2 & model=causal & comm=a2a' --dump "
      "'{}' --device cpu 2>&1",
      CP_POOL_PROGRAM, (folder / "d").string());
  const Finished done = run_to_end({"bash", "-c", "set -o pipefail; (" + run + ") | cat"});
  EXPECT_EQ(done.exit_code, 73);
  EXPECT_THAT(done.out, ::testing::ContainsRegex("error: --dump: cannot write .*\\.safetensors: File too large\n"));
  EXPECT_EQ(done.out.find("error: "), done.out.rfind("error: "));
  EXPECT_THAT(done.last_line(), ::testing::ContainsRegex("^([0-9]+) expanded = [1-9][0-9]* pass \\+ 0 fail, "));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "d"));
}

}  // namespace
}  // namespace cp_pool::test
