// Writes a case with its inputs and what all ranks computed, in global sequence order, for a check by other means
// (tools/check_dump.py; the format is described in docs/numerics.md).
#pragma once

#include <filesystem>
#include <string>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/verify/inputs.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::verify {

// Collective; rank 0 writes the file, and makes its folder. Each row is written once. A result of the wrong shape or
// dtype is gathered as NaN. Throws CommError, and on rank 0, when every rank has given its part, FileError.
void dump_case(const std::filesystem::path& file, const std::string& id, const Case& c, const SequenceLengths& lengths,
               const Sharding& sharding, const CanonicalInputs& inputs, const Results& results, Communicator& group);

}  // namespace cp_pool::verify
