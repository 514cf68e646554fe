// Random small cases over every field of Case, often at the edges where mistakes show (edges.h).
#pragma once

#include <random>
#include <span>

#include "cases/case.h"
#include "cases/case_json.h"

namespace cp_pool::search {

// A field that has the same value in every case, as `--set` gives it.
struct FixedField {
  const CaseField* field = nullptr;
  Json value;
};

// Returns a case of defaults with these fields. Throws CaseError for a value that the field cannot have.
Case with_fixed(std::span<const FixedField> fixed);

// Returns a valid case that runs in milliseconds; it is the same on every machine for the same state of the generator.
// With a2a and a2a+p2p the heads divide over their ranks. Fields drawn after a fixed field suit its value. A fixed
// field may contradict fields drawn before it or another fixed field; then the case has a problem (find_problem).
Case random_case(std::mt19937_64& generator, std::span<const FixedField> fixed = {});

}  // namespace cp_pool::search
