// A diagnosis as it enters the driver. Whatever a worker or an events file says, what comes out is bounded and well
// formed, since a diagnosis never changes the outcome of its case, and reports draw what it holds.
#pragma once

#include <cstddef>
#include <string>

#include "cases/diagnosis.h"

namespace cp_pool::protocol {

inline constexpr std::size_t kMaxSentenceBytes = 1024;  // of a cause, a piece of evidence, a rectangle's text
inline constexpr std::size_t kMaxNameBytes = 64;        // of an id or a tensor
inline constexpr std::size_t kMaxSentences = 64;        // pieces of evidence; also rectangles and strips
inline constexpr std::size_t kMaxNames = 64;            // in `explains` and in `others`
inline constexpr std::size_t kMaxPictureCells = 512;    // of a side of the picture
inline constexpr std::size_t kMaxStripCells = 4096;

Diagnosis unknown_diagnosis(std::string cause);

// Puts sentences on one line, cuts what is too long, and drops rectangles, a picture and strips that are not well
// formed; evidence says which. One that names no id or no cause, though it is not unknown, becomes an unknown one that
// says so.
Diagnosis well_formed(Diagnosis diagnosis);

}  // namespace cp_pool::protocol
