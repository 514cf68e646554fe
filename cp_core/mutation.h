// Seams at which a test puts one deliberate fault into the library, to see that the verification catches it.
//
// In the product CP_MUTATE(name, normal, mutated) is `normal`, and nothing else is compiled. In the library
// cp_core_mutants (CP_POOL_MUTANTS) it is `mutated` while the mutant is on:
//   ScopedMutant on(Mutant::mask_offset);   // for every thread of the process, until the end of the scope
// A mutant gives wrong numbers; it never waits for ever and never leaves its tensors. mutants.def lists them all.
#pragma once

#include <span>
#include <string_view>

namespace cp_pool {

enum class Mutant {
  none,
#define CP_MUTANT(name, where, description) name,
#include "cp_core/mutants.def"
#undef CP_MUTANT
};

// The kind of ranks on which a mutant changes the result (mutants.def).
enum class MutantWhere { both, cpu, gpu };

struct MutantInfo {
  Mutant mutant;
  std::string_view name;
  MutantWhere where;
  std::string_view description;  // what goes wrong while it is on
};

std::span<const MutantInfo> all_mutants();

// Turns one mutant on, in cp_core_mutants, until the end of the scope. Throws std::logic_error if one is on already.
class ScopedMutant {
 public:
  explicit ScopedMutant(Mutant mutant);
  ~ScopedMutant();
  ScopedMutant(const ScopedMutant&) = delete;
  ScopedMutant& operator=(const ScopedMutant&) = delete;
};

bool mutant_is_on(Mutant mutant);

}  // namespace cp_pool

#ifdef CP_POOL_MUTANTS
#define CP_MUTATE(name, normal, mutated) (::cp_pool::mutant_is_on(::cp_pool::Mutant::name) ? (mutated) : (normal))
#else
#define CP_MUTATE(name, normal, mutated) (normal)
#endif
