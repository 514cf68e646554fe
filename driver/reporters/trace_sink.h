// Writes the run as a trace for chrome://tracing and ui.perfetto.dev (docs/command_line.md describes its tracks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

// The file begins with this text.
inline constexpr std::string_view kRunTraceStart = R"({"displayTimeUnit":"ms","otherData":{"writer":"cp-pool")";

class TraceSink : public EventSink {
 public:
  // Checks that the file can be written. Throws OutputError.
  explicit TraceSink(std::filesystem::path path);

  // Takes an event; events without a time, which earlier versions wrote, are ignored. Writes the file on run_finished,
  // interrupted or not. Throws OutputError.
  void on_event(const Event& event) override;

 private:
  static constexpr int kSlowest = -1;

  // All times are microseconds of the run's clock, from its beginning.
  using Micros = std::int64_t;

  struct Span {
    std::string name;
    const char* category = "";
    Micros begin = 0;
    Micros end = 0;
    std::vector<std::pair<std::string, std::string>> arguments;
  };
  struct TracedPool {
    PoolId id;
    std::vector<int> slots;
    Micros spawned = 0;
    std::optional<Micros> ready;              // nullopt if it never was
    std::optional<Micros> retired;            // nullopt if the run ended before
    std::string why;                          // why it ended
    std::vector<Span> cases;                  // cases, earlier tries of cases, and diagnoses
    std::map<int, std::vector<Span>> phases;  // by rank; kSlowest holds those of the slowest rank of each phase
  };
  struct Running {
    std::size_t pool = 0;
    Micros sent = 0;
    int attempt = 1;
    std::string id;
    std::vector<std::pair<double, std::string>> phases;  // reported phases, with milliseconds since the case was sent
  };

  void on(const PoolSpawned& event);
  void on(const PoolReady& event);
  void on(const PoolRetired& event);
  void on(const CaseStarted& event);
  void on(const CaseProgress& event);
  void on(const CaseFinished& event);
  void on(const CaseReplayed& event);
  void on(const CaseVerdict& event);
  void on(const RunPaused& event);
  static void add_phases(TracedPool& pool, const CaseFinished& event, const Running& run, Micros end);
  static std::vector<Span> phases_of(const std::map<std::string, double>& timings_ms, const CaseFinished& event,
                                     Micros begin, Micros end);
  void end_try(const Running& run, Micros at);
  Micros note(double at_ms);
  std::optional<std::size_t> find(const PoolId& id) const;
  [[nodiscard]] std::string document() const;

  AtomicFile file_;
  RunStarted run_;
  std::vector<TracedPool> pools_;
  std::map<std::size_t, Running> running_;  // by index
  std::vector<Span> marks_;                 // without a length: pauses, verdicts, and cases that no pool ran
  Micros end_ = 0;                          // time of the last event
};

}  // namespace cp_pool
