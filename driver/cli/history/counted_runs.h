// Finds the run that counts for a case of several runs: the last one that ran it. A run that came to its end before it
// (interrupted, killed, out of time) counts only for a case that no run ran.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace cp_pool {

// What makes two runs of a case runs of one case.
struct CaseKey {
  std::string id;
  std::string size;
  std::string device;
  std::string case_text;  // empty: it is not known, and is taken for that of another run with the same names

  auto operator<=>(const CaseKey&) const = default;
};

class CountedRuns {
 public:
  // Runs are numbered in the order in which they began. ran: the case has an outcome of its own there.
  void add(const CaseKey& key, std::size_t run, bool ran);
  // Once, after the last add.
  void close();

  [[nodiscard]] std::size_t counted(const CaseKey& key) const;
  [[nodiscard]] std::size_t first(const CaseKey& key) const;

 private:
  using Runs = std::map<std::size_t, bool>;  // run -> whether it ran the case
  using Names = std::tuple<std::string, std::string, std::string>;

  struct Unknown {
    Names names;
    std::size_t run;
    bool ran;
  };

  [[nodiscard]] const Runs& runs_of(const CaseKey& key) const;

  std::map<Names, std::map<std::string, Runs>> runs_;  // by names, then case_text
  std::vector<Unknown> unknown_;
};

}  // namespace cp_pool
