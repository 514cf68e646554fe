// Fuzz target: a case as JSON text, as users and drivers write it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/case_json.h"
#include "tests/fuzz/require.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cp_pool;
  Case c;
  try {
    c = parse_case_text({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const CaseError& e) {
    fuzz::require(std::string_view{e.what()}.starts_with("fuzz"), "an error does not name its source");
    return 0;
  }
  const Json json = to_json(c);
  const Case again = parse_case_text(json.dump(), "fuzz");
  fuzz::require(to_json(again) == json, "a case changes when it is written and read");
  fuzz::require(case_id(again) == case_id(c), "a case changes its ID when it is written and read");
  return 0;
}
