// Cleans a diagnosis that enters the driver from a worker or an events file. A diagnosis never changes the outcome of
// its case, and reports draw its contents; so it is bounded and made well formed instead of refused.
#pragma once

#include <cstddef>
#include <string>

#include "cases/diagnosis.h"

namespace cp_pool::protocol {

inline constexpr std::size_t kMaxSentenceBytes = 1024;  // bytes of a cause, a piece of evidence, or a rectangle's text
inline constexpr std::size_t kMaxNameBytes = 64;        // bytes of an id or a tensor's name
inline constexpr std::size_t kMaxSentences = 64;        // most pieces of evidence; also most rectangles and strips
inline constexpr std::size_t kMaxNames = 64;            // most names in `explains`, and in `others`
inline constexpr std::size_t kMaxPictureCells = 512;    // most rows, and most columns, of the picture
inline constexpr std::size_t kMaxStripCells = 4096;

Diagnosis unknown_diagnosis(std::string cause);

// Puts sentences on one line, cuts texts that are too long, and drops rectangles, a picture and strips that are not
// well formed; `evidence` says which. A diagnosis without a cause, or with a certainty but no usable id, is replaced by
// an unknown one that says so.
Diagnosis well_formed(Diagnosis diagnosis);

}  // namespace cp_pool::protocol
