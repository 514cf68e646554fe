// Reads files that --events wrote (docs/events.md), for reruns, baselines and reports, and decides which of several
// runs counts for a case.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// How far a run has come, as its events say.
struct LoggedRun {
  struct Pending {
    std::size_t times = 1;  // how often the case is still to run
    bool is_running = false;
    std::optional<Payload> payload = std::nullopt;  // as its start said
  };

  RunStarted header;
  std::optional<RunFinished> end;          // nullopt if the run goes on or its driver died
  std::size_t repeats = 1;                 // how often each case runs (--repeat)
  std::map<std::string, Pending> pending;  // the cases that have not finished, by ID

  void take(const Event& event);

  // Whether the run left cases that nothing is known of: it was a stream that was cut, or its version of cp-pool did
  // not write the IDs of its cases.
  [[nodiscard]] bool left_unknown_cases() const { return !end && header.ids.empty(); }
};

// Takes an event, and the time at which it was written if its line has one.
using TakeEvent = std::function<void(Event event, std::optional<std::chrono::system_clock::time_point> at)>;

// Reads the file line by line and passes every event that this version knows to `take`, in order. Texts in the events
// are clean (worker/protocol/text_clean.h). A line may be cut where its driver died. `what` names the file in errors,
// such as "the baseline". Throws CommandError (bad_input) if the file cannot be read, a line is no event, or `take`
// throws std::invalid_argument.
void read_events(const std::filesystem::path& file, std::string_view what, const TakeEvent& take);

// Throws CommandError (bad_input): the file holds no run.
[[noreturn]] void refuse_without_run(const std::filesystem::path& file);

// Two runs ran the same case if these are equal.
struct CaseKey {
  std::string id;
  std::string size;
  std::string device;
  std::string implementation;
  std::string case_text;  // empty if unknown; then it matches the case of another run with the same names

  auto operator<=>(const CaseKey&) const = default;
};

// `payload`: nullopt if only the ID is known.
CaseKey case_key(const RunStarted& run, const std::string& id, const std::string& implementation,
                 const std::optional<Payload>& payload);

class CountedRuns {
 public:
  // Runs are numbered in the order in which they began. `ran` says that the run has an outcome of its own for the case.
  void add(const CaseKey& key, std::size_t run, bool ran);
  // To be called once, after the last add.
  void close();

  [[nodiscard]] std::size_t counted(const CaseKey& key) const;
  [[nodiscard]] std::size_t first(const CaseKey& key) const { return find(key)->second.begin()->first; }

 private:
  using Runs = std::map<std::size_t, bool>;  // by number of the run: whether it ran the case
  using RunsOfCases = std::map<CaseKey, Runs>;

  [[nodiscard]] RunsOfCases::const_iterator find(const CaseKey& key) const;

  RunsOfCases runs_;
  std::vector<std::tuple<CaseKey, std::size_t, bool>> unknown_;  // what was added without case_text
};

}  // namespace cp_pool
