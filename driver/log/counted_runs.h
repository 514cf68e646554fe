// Finds the run whose outcome counts for a case that several runs had: the last run that ran it. A run that ended
// before it ran the case (interrupted, killed, out of time) counts only if no run ran the case.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

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
  [[nodiscard]] std::size_t first(const CaseKey& key) const;

 private:
  using Runs = std::map<std::size_t, bool>;  // by number of the run: whether it ran the case
  using Names = std::tuple<std::string, std::string, std::string, std::string>;

  struct Unknown {
    Names names;
    std::size_t run;
    bool ran;
  };

  static Names names_of(const CaseKey& key) { return {key.id, key.size, key.device, key.implementation}; }
  [[nodiscard]] const Runs& runs_of(const CaseKey& key) const;

  std::map<Names, std::map<std::string, Runs>> runs_;  // by names, then case_text
  std::vector<Unknown> unknown_;
};

}  // namespace cp_pool
