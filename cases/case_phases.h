// The phases of a case, by the names that progress, timings, stacks and reports use.
#pragma once

#include <array>

namespace cp_pool::case_phase {

inline constexpr const char* kReset = "reset";
inline constexpr const char* kBegin = "begin";  // waits until every rank has reset its state
inline constexpr const char* kInputs = "inputs";
inline constexpr const char* kForward = "forward";
inline constexpr const char* kBackward = "backward";
inline constexpr const char* kRepeat = "repeat";  // runs the step a second time, which has to give the same bits
inline constexpr const char* kReference = "reference";
inline constexpr const char* kCompare = "compare";
inline constexpr const char* kDump = "dump";               // with --dump
inline constexpr const char* kProbe = "probe";             // finds the keys that each query sees
inline constexpr const char* kTimed = "timed";             // with --mode perf
inline constexpr const char* kTimedAlone = "timed alone";  // with --mode perf: the whole problem on rank 0 alone
inline constexpr const char* kBarrier = "barrier";         // closes the case
inline constexpr const char* kReport = "report";           // sends the rank's report to rank 0

// The phases in the order in which a case goes through them. All but begin and report are timed.
inline constexpr std::array kOfACase{kReset,   kBegin, kInputs, kForward, kBackward,   kRepeat,  kReference,
                                     kCompare, kDump,  kProbe,  kTimed,   kTimedAlone, kBarrier, kReport};

// Follows the report of a case that failed.
inline constexpr const char* kDiagnosis = "diagnosis";

// The phases of a rank that runs no case.
inline constexpr const char* kStart = "start";  // not connected yet
inline constexpr const char* kIdle = "idle";

}  // namespace cp_pool::case_phase
