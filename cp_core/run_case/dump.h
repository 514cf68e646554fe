// Writes a case with its inputs and the results of all ranks, in global sequence order, for an independent check by
// tools/check_dump.py. docs/numerics.md describes the format.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::verify {

// A file that a case writes beside its answer (a dump, a trace) cannot be written, which says nothing about the answer.
// what() is one line that names the path and the cause.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Collective over group. Rank 0 writes the file and makes its folder. Each row is written once. A result of a wrong
// shape or dtype is gathered as NaN. Throws CommError; rank 0 throws FileError, after all ranks have contributed.
void dump_case(const std::filesystem::path& file, const std::string& id, const Case& c, const SequenceLengths& lengths,
               const Sharding& sharding, const CanonicalInputs& inputs, const Results& results, Communicator& group);

}  // namespace cp_pool::verify
