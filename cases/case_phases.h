// The phases of a case, by the names that progress, timings, stacks and reports have for them.
#pragma once

#include <array>

namespace cp_pool::case_phase {

inline constexpr const char* kReset = "reset";
inline constexpr const char* kBegin = "begin";  // until every rank has reset its state
inline constexpr const char* kInputs = "inputs";
inline constexpr const char* kForward = "forward";
inline constexpr const char* kBackward = "backward";
inline constexpr const char* kRepeat = "repeat";  // the step once more: it has to give the same bits
inline constexpr const char* kReference = "reference";
inline constexpr const char* kCompare = "compare";
inline constexpr const char* kDump = "dump";    // with --dump
inline constexpr const char* kProbe = "probe";  // of the mask
inline constexpr const char* kTimed = "timed";  // with --mode perf, as the next
inline constexpr const char* kTimedAlone = "timed alone";
inline constexpr const char* kBarrier = "barrier";  // that closes the case
inline constexpr const char* kReport = "report";    // to rank 0

// In the order in which a case goes through them. All but begin and report are timed.
inline constexpr std::array kOfACase{kReset,   kBegin, kInputs, kForward, kBackward,   kRepeat,  kReference,
                                     kCompare, kDump,  kProbe,  kTimed,   kTimedAlone, kBarrier, kReport};

// After the report of a case that failed.
inline constexpr const char* kDiagnosis = "diagnosis";

// Where a rank is in no case.
inline constexpr const char* kStart = "start";  // not connected yet
inline constexpr const char* kIdle = "idle";

}  // namespace cp_pool::case_phase
