// What a fake worker does after the result of a case whose model begins with "diag_", if it was asked for a diagnosis.
#pragma once

#include <cstdint>
#include <string>

#include "tests/driver/fake_worker/control_plane.h"
#include "worker/protocol/messages.h"

namespace cp_pool::fake {

// Waits for SIGUSR2, by which the driver asks for stacks when it has given up waiting for a result or a diagnosis.
void wait_for_sigusr2();

// Whether the model begins with "diag_". The result of such a case is a fail.
bool is_diagnosed(const std::string& kind);

// A diagnosis with the certainty "certain" and `kind` as its id.
protocol::DiagnosisEvent diagnosis_of(const std::string& kind, std::int64_t seq);

// Sends a diagnosis before the result, if the model says so.
void speak_too_early(const std::string& kind, std::int64_t seq);
// Does after the result what the model says.
void diagnose(const std::string& kind, std::int64_t seq, Ranks& ranks);

}  // namespace cp_pool::fake
