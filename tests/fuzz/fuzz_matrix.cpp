// Fuzz target: a matrix file, which is read and expanded at each of its sizes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cases/case_error.h"
#include "cases/json_text.h"
#include "cases/matrix.h"
#include "tests/fuzz/require.h"

namespace cp_pool {
namespace {

// The most combinations that are expanded. An input with thousands of cases would only slow the fuzzer down.
constexpr std::size_t kMaxCombinations = 100;

std::size_t combinations(const std::vector<MatrixAxis>& axes) {
  std::size_t product = 1;
  for (const MatrixAxis& axis : axes) product = std::min(product * axis.values.size(), kMaxCombinations + 1);
  return product;
}

bool is_small(const Matrix& matrix) {
  std::size_t all = combinations(matrix.axes);
  for (const MatrixSize& size : matrix.sizes) all *= combinations(size.axes);
  for (const MatrixModel& model : matrix.models) all *= combinations(model.axes);
  return all <= kMaxCombinations && matrix.sizes.size() * matrix.models.size() <= kMaxCombinations;
}

void expand_all(const Matrix& matrix) {
  if (!is_small(matrix)) return;
  for (const MatrixSize& size : matrix.sizes) {
    try {
      for (const MatrixCase& expanded : expand(std::array{matrix}, size.name)) {
        fuzz::require(expanded.call || !find_problem(expanded.c), "an impossible case comes out of a matrix");
        fuzz::require(!expanded.id.empty(), "a case has no ID");
      }
    } catch (const CaseError&) {
      continue;  // this size cannot be expanded
    }
  }
}

}  // namespace
}  // namespace cp_pool

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cp_pool;
  try {
    expand_all(parse_matrix(parse_json_text({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz"));
  } catch (const CaseError& e) {
    fuzz::require(std::string_view{e.what()}.starts_with("fuzz"), "an error does not name its source");
  }
  return 0;
}
