// An error in code that a case runner runs, with a text of its own such as the traceback of another language.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "worker/rank_messages.h"

namespace cp_pool {

class RunnerError : public std::runtime_error {
 public:
  // summary: one line. text: the whole text, to which no stack of this process is added. kind: assertion and exception
  // mean that the code is at fault, unsupported skips the case, and the others mean that peers held the rank up.
  // collective: as in Failure.
  RunnerError(FailureKind kind, const std::string& summary, std::string text, std::string collective = {})
      : std::runtime_error(summary), kind_(kind), text_(std::move(text)), collective_(std::move(collective)) {}
  [[nodiscard]] FailureKind kind() const { return kind_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& collective() const { return collective_; }

 private:
  FailureKind kind_;
  std::string text_;
  std::string collective_;
};

// This rank does not run the case, or answer a question of its diagnosis, and has begun nothing that a peer waits for.
// If every rank throws it at the same place, nobody has to be freed: the case is a skip. Else it is the failure of this
// rank that `alone` describes.
class Declined : public std::runtime_error {
 public:
  // place: compared between the ranks; never empty.
  Declined(const std::string& reason, std::string place, Failure alone)
      : std::runtime_error(reason), place_(std::move(place)), alone_(std::move(alone)) {}
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] const Failure& alone() const { return alone_; }

 private:
  std::string place_;
  Failure alone_;
};

}  // namespace cp_pool
