// Fuzz target: a filter expression, applied to a few cases.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "cases/filter.h"
#include "tests/fuzz/require.h"

namespace cp_pool {
namespace {

const std::array<std::string, 2> kTags{"essential", "slow"};

std::array<Case, 2> cases() {
  constexpr std::string_view kSizes =
      R"("seqlen_q":64,"seqlen_kv":64,"heads":4,"kv_heads":2,"head_dim_qk":8,"head_dim_v":8})";
  return {parse_case_text(std::string{R"({"suite":"a","model":"m",)"} + std::string{kSizes}, "case"),
          parse_case_text(std::string{R"({"suite":"b","model":"n_2","layout":"thd","batch":2,"seqlens":[8,16],)"
                                      R"("bias":"1hss","window":[3,-1],"causal":true,)"} +
                              std::string{kSizes},
                          "case")};
}

}  // namespace
}  // namespace cp_pool

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cp_pool;
  static const std::array<Case, 2> subjects = cases();
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  for (const auto scope : {Filter::Scope::everything, Filter::Scope::case_and_tags}) {
    try {
      const Filter filter = Filter::parse(text, scope);
      for (const Case& c : subjects) {
        const FilterSubject subject{c, kTags, "a/m/p2p/cp2/bshd/bf16", "small"};
        const bool first = filter.matches(subject);
        fuzz::require(filter.matches(subject) == first, "a filter does not know its own mind");
        fuzz::require(Filter::parse("!(" + std::string{text} + ")", scope).matches(subject) != first,
                      "a filter and its negation agree");
      }
    } catch (const CaseError& e) {
      fuzz::require(std::string_view{e.what()}.find('^') != std::string_view::npos, "an error has no caret");
    }
  }
  return 0;
}
