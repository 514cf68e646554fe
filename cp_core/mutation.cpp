#include "cp_core/mutation.h"

#include <array>
#include <atomic>
#include <stdexcept>

namespace cp_pool {
namespace {

constexpr std::array kMutants{
#define CP_MUTANT(name, where, description) MutantInfo{Mutant::name, #name, MutantWhere::where, description},
#include "cp_core/mutants.def"
#undef CP_MUTANT
};

// The mutant that is on. Only tests set it, and the product has no seam that reads it.
std::atomic<Mutant>& current() {
  static std::atomic<Mutant> mutant{Mutant::none};
  return mutant;
}

}  // namespace

std::span<const MutantInfo> all_mutants() {
  return kMutants;
}

ScopedMutant::ScopedMutant(Mutant mutant) {
  Mutant expected = Mutant::none;
  if (!current().compare_exchange_strong(expected, mutant)) throw std::logic_error("another mutant is on");
}

ScopedMutant::~ScopedMutant() {
  current() = Mutant::none;
}

bool mutant_is_on(Mutant mutant) {
  return current().load(std::memory_order_relaxed) == mutant;
}

}  // namespace cp_pool
