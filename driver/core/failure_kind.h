// Decides whether two cases failed in the same way. Every view that groups failures uses this definition.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// Figures, numbers of rows and ranks, and addresses are left out of all texts, because they differ between cases of
// one fault.
struct FailureSignature {
  // Readable text: the outcome and
  //   fail     the first tensor, in the order of the worker's checks, that is wrong on any rank
  //   error    the first line of the reason
  //   crash    how the first rank died, and in which phase
  //   timeout  the phase in which the case hung, or the worker's description of the wait that timed out
  //   pass     why it was expected to fail, if the case passed although it was strictly expected to fail
  // Empty if the case did not fail.
  std::string how;
  // What else is known of the origin: the id of the cause that a diagnosis named, or else
  //   fail            what the check says of the tensor
  //   error           the function that threw
  //   crash, timeout  the last lines that the ranks wrote to stderr
  std::string origin;

  auto operator<=>(const FailureSignature&) const = default;
};
FailureSignature failure_signature(const CaseFinished& event);

// Numbers the kinds of failures in the order in which they first occur.
class FailureKinds {
 public:
  // Returns the number of the event's kind, which may be a new one. If a case runs several times (--repeat), only its
  // first failure is diagnosed; later ones with the same `how` are of the same kind.
  std::size_t add(const CaseFinished& event);
  // The same, but returns the ID of the first case of the kind; empty if this is the first.
  std::string first_like(const CaseFinished& event);

 private:
  std::vector<std::string> firsts_;  // for each kind the ID of its first case
  std::map<FailureSignature, std::size_t> known_;
  std::map<std::pair<std::string, std::string>, std::size_t> of_cases_;  // by ID and `how`
};

}  // namespace cp_pool
