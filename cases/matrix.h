// A matrix file: named models times axes, expanded to cases. The format is described in docs/matrix_format.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/call.h"
#include "cases/case.h"
#include "cases/case_json.h"
#include "cases/filter.h"
#include "cases/json_place.h"

namespace cp_pool {

// One key of a case, its value in the file, and the place of that value.
struct MatrixValue {
  const CaseField* field;  // null for an argument of a call, and for its number of ranks
  Json value;              // read successfully when the file was parsed
  JsonPlace place;
};

struct MatrixAxis {
  std::string name;                 // the key, or the name of an argument; cp_size: the number of ranks
  const CaseField* field;           // as in MatrixValue
  std::vector<MatrixValue> values;  // at least one, all different
};

struct MatrixModel {
  std::string name;
  JsonPlace place;
  std::vector<MatrixValue> values;  // override the file's defaults and axes
  std::vector<MatrixAxis> axes;     // override the file's, too
  std::vector<std::string> tags;
  // If the model is a call, its function and fixed arguments; `values` is then empty, and the axes are arguments.
  std::optional<Call> call;
};

struct MatrixRule {
  Filter when;
  std::vector<MatrixValue> set;
  std::vector<std::string> tags;  // added to those of the case
};

// How the cases of the file change at this size. The IDs stay the same.
struct MatrixSize {
  using Heads = std::pair<std::int64_t, std::int64_t>;  // heads, kv_heads

  std::string name;
  JsonPlace place;
  std::vector<MatrixAxis> axes;                              // replace the file's axes of the same keys
  std::vector<std::pair<MatrixValue, std::int64_t>> divide;  // lengths in tokens, and their divisors
  std::map<Heads, Heads> heads;  // new numbers of heads for each of the file's; empty = unchanged
};

struct Matrix {
  std::string source;
  std::string suite;
  std::string about;
  std::vector<MatrixValue> defaults;  // the file's seed is one of them
  std::vector<MatrixAxis> axes;
  std::vector<MatrixModel> models;
  std::vector<MatrixRule> rules;
  std::vector<Filter> excludes;
  std::vector<Filter> optional;
  std::vector<MatrixSize> sizes;  // empty: the matrix has only calls, which are the same at every size
};

// A case of a matrix.
struct MatrixCase {
  std::string id;
  Case c;                    // of a call: only suite, model and cp_size count
  std::optional<Call> call;  // if it is a call and no attention case
  std::string size;
  std::vector<std::string> tags;  // sorted
  bool optional = false;          // selected only if a filter or its ID asks for it
  std::string source;             // file and JSON path of its model

  [[nodiscard]] FilterSubject subject() const {
    return {.c = c, .tags = tags, .id = id, .size = size, .call = call ? &*call : nullptr};
  }
};

// Both read strictly: they throw CaseError for an unknown key, a wrong type or a duplicate value.
Matrix parse_matrix(const Json& json, std::string_view source);
Matrix load_matrix(const std::string& path);

// Calls `take` with every case of the matrices at that size, before any filter. The order is that of the files and
// their models. Within a model dtype changes slowest, then the axes that change the problem, then layout and padding;
// backend, comm and cp_size change fastest. Cases that share inputs and reference are therefore adjacent, even after
// they are split by world size. Throws CaseError for a size that a matrix lacks, an impossible case, two cases with one
// ID, or a matrix whose excludes leave no case.
using TakeMatrixCase = std::function<void(const Matrix& matrix, MatrixCase&& made)>;
void visit_cases(std::span<const Matrix> matrices, std::string_view size, const TakeMatrixCase& take);
// Returns all of them.
std::vector<MatrixCase> expand(std::span<const Matrix> matrices, std::string_view size);

}  // namespace cp_pool
