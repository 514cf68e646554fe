// Random small cases over every field of Case, often at the edges where mistakes lie (edges.h).
#pragma once

#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_json.h"

namespace cp_pool::search {

// A field that has the same value in every case, as `--set` gives it.
struct FixedField {
  const CaseField* field = nullptr;
  Json value;
};

// Throws CaseError for a value that the field cannot have.
void set_fixed(std::span<const FixedField> fixed, Case& c);

// A case that runs in milliseconds; the same on every machine for the same state of the generator. It is valid, and a2a
// and a2a+p2p get heads that divide over their ranks. What is drawn after a fixed field fits to it; but a fixed field
// may contradict what was drawn before it, or another fixed field, and then the case has a problem (find_problem).
Case random_case(std::mt19937_64& generator, std::span<const FixedField> fixed = {});

// Every field that is drawn: all of case_fields() but the two names, suite and model.
std::vector<std::string_view> drawn_fields();

}  // namespace cp_pool::search
