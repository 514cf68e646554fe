// Events for the tests of the views: a small run with one case of every kind that the views treat differently.
#pragma once

#include <string>

#include "cases/lengths.h"
#include "driver/core/events.h"
#include "driver/core/ledger.h"
#include "driver/log/run_report.h"

namespace cp_pool::test {

// Lengths of one sequence, with as many keys as queries.
inline SequenceLengths one_sequence(std::int64_t valid, std::int64_t padded) {
  return {.valid_q = {valid}, .padded_q = {padded}, .valid_kv = {valid}, .padded_kv = {padded}};
}

inline Case example_case(const std::string& suite = "te-flash", const std::string& model = "cp_2_0") {
  Case c;
  c.suite = suite;
  c.model = model;
  c.batch = 2;
  c.seqlen_q = 128;
  c.seqlen_kv = 128;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim_qk = 64;
  c.head_dim_v = 64;
  return c;
}

inline Check right_check(int rank) {
  return {.tensor = "out",
          .rank = rank,
          .max_abs = 1e-3,
          .rms = 1e-4,
          .error = 1e-3,
          .bound = 2e-3,
          .baseline = 1e-3,
          .worst_index = {0, 1, 2},
          .ok = true};
}

inline CaseFinished finished(std::size_t index, const std::string& id, CaseOutcome outcome, std::string reason = "") {
  CaseFinished event;
  event.index = index;
  event.id = id;
  event.payload = example_case();
  event.seq = static_cast<std::int64_t>(index) + 1;
  event.pool = PoolId{"cpu/2", 1};
  event.attempts = 1;
  event.outcome = outcome;
  event.reason = std::move(reason);
  event.duration_ms = 100.0 * static_cast<double>(index + 1);
  event.backend = "math";
  event.rerun = "cp-pool run --matrix te-flash --size small --filter " + id;
  if (outcome == CaseOutcome::pass) {
    for (int rank = 0; rank < event.payload->ranks(); ++rank) event.checks.push_back(right_check(rank));
  }
  return event;
}

// A try that is followed by another one.
inline CaseTried tried(std::size_t index, const std::string& id, CaseOutcome outcome, std::string reason = "") {
  return CaseTried{finished(index, id, outcome, std::move(reason))};
}

// A pass on the second try.
inline CaseFinished flaky_case(std::size_t index, const std::string& id) {
  CaseFinished event = finished(index, id, CaseOutcome::pass);
  event.attempts = 2;
  event.flaky = true;
  return event;
}

// The verdict of a case that fails only after `culprit`.
inline CaseVerdict state_leak(std::size_t index, const std::string& id, const std::string& culprit) {
  CaseVerdict event;
  event.index = index;
  event.id = id;
  event.verdict = {.kind = VerdictKind::state_leak,
                   .culprit = culprit,
                   .k = 2,
                   .n = 2,
                   .evidence = {"alone on a fresh pool, the case failed in the same way in 0 of 3 replays",
                                "after the suspect, the case failed"}};
  return event;
}

// A pass of 2 ranks in a run that takes times.
inline CaseFinished timed_case(std::size_t index, const std::string& id, double ms,
                               std::optional<double> one_rank_ms = std::nullopt) {
  CaseFinished event = finished(index, id, CaseOutcome::pass);
  PerfFigures& figures = event.perf.emplace();
  figures.request = {.warmup = 2, .iterations = 9};
  figures.step_ms = {.median = ms, .min = ms / 2, .max = ms * 2};
  figures.ranks = {{0, {.median = ms, .min = ms / 2, .max = ms * 2}}};
  figures.tflops = 123.4;
  figures.bytes_sent = 4096;
  figures.gbytes_per_s = 5.678;
  if (one_rank_ms) {
    figures.one_rank_ms = StepMs{.median = *one_rank_ms, .min = 1, .max = 1000};
    figures.efficiency = *one_rank_ms / (2 * ms);
  } else {
    figures.one_rank_reason = "it does not fit";
  }
  return event;
}

// A timed pass with a time of the run that this one is compared with.
inline CaseFinished compared_case(std::size_t index, const std::string& id, double ms, double baseline_ms) {
  CaseFinished event = timed_case(index, id, ms, ms);
  event.perf->baseline_ms = baseline_ms;
  return event;
}

// A case that is wrong on rank 1, with a stack trace on rank 0 and the stderr of both ranks.
inline CaseFinished failed_case(std::size_t index, const std::string& id) {
  CaseFinished event = finished(index, id, CaseOutcome::fail, "dq is wrong on rank 1");
  event.checks = {right_check(0),
                  {.tensor = "dq",
                   .rank = 1,
                   .max_abs = 0.04,
                   .rms = 0.001,
                   .error = 0.031,
                   .bound = 0.012,
                   .baseline = 0.005,
                   .worst_index = {0, 17, 3},
                   .ok = false}};
  event.ranks = {{{.output_hash = "00ff"}, 0, /*ok=*/false, /*aborted=*/false, "first line\nsecond line"},
                 {{.output_hash = "11ff"}, 1}};
  event.stderr_tails = {{.rank = 0, .text = "hello from rank 0\n", .fenced = true},
                        {.rank = 1, .text = "one\ntwo\n", .fenced = false}};
  return event;
}

// A diagnosis of a wrong mask that has all fields.
inline Diagnosis example_diagnosis() {
  Diagnosis out;
  out.certainty = Certainty::certain;
  out.id = "window_left_off_by_one";
  out.cause = "the window's left edge is 63 instead of 64 on all ranks";
  out.explains = {"out", "dq"};
  out.evidence = {"rows 64 and later are wrong"};
  WrongPairs& pairs = out.pairs.emplace();
  pairs.missing_pairs = 64;
  pairs.missing = {{.text = "queries 64..127 (rank 1) did not see keys 0..63 (rank 0)",
                    .q_first = 64,
                    .q_last = 127,
                    .kv_last = 63}};
  out.picture =
      MaskPicture{.q_per_cell = 64, .kv_per_cell = 64, .rows = {". ", "-."}, .q_ranks = {0, 1}, .kv_ranks = {0, 1}};
  out.strips = {
      {.tensor = "out", .rank = 1, .rows_per_cell = 32, .by_row = {0.5, 40}, .borders = {1}, .by_head = {40}}};
  out.ms = 12.5;
  return out;
}

inline RunStarted run_started(std::size_t cases) {
  return {.title = "te-flash",
          .size = "small",
          .device = "cpu",
          .implementations = {"own"},
          .cases = cases,
          .version = "0.1.0",
          .started = std::chrono::system_clock::from_time_t(1'800'000'000)};  // 2027-01-15T08:00:00Z
}

inline RunReport report_of(const std::vector<Event>& events) {
  RunReport report;
  for (const Event& event : events) report.add(event);
  return report;
}

inline PoolReady pool_ready(int generation = 1) {
  PoolReady event;
  event.pool = {"cpu/2", generation};
  event.spawn_to_ready_ms = 812;
  event.worker = "cp-pool-worker 0.1.0";
  event.world_size = 2;
  event.device = "cpu";
  event.ranks = {{0, "host", 70}, {1, "host", 71}};
  return event;
}

inline PoolRetired pool_retired(RetireReason reason, std::string detail = "") {
  PoolRetired event;
  event.pool = {"cpu/2", 1};
  event.reason = reason;
  event.detail = std::move(detail);
  event.cases = 3;
  return event;
}

// counts in the order of CaseOutcome.
inline RunFinished run_finished(std::array<std::size_t, kCaseOutcomes> counts, double duration_ms = 41200) {
  RunFinished event;
  event.counts = counts;
  for (const std::size_t count : counts) event.expanded += count;
  event.duration_ms = duration_ms;
  event.exit_code = exit_code(event, {});
  return event;
}

}  // namespace cp_pool::test
