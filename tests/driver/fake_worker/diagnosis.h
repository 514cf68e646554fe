// What a fake worker does after the result of a case whose model begins with "diag_": it was asked for a diagnosis.
#pragma once

#include <cstdint>
#include <string>

#include "tests/driver/fake_worker/control_plane.h"
#include "worker/protocol/messages.h"

namespace cp_pool::fake {

// Whether the model is one of these. Its result is a fail.
bool is_diagnosed(const std::string& kind);

// "certain", found in the model.
protocol::DiagnosisEvent diagnosis_of(const std::string& kind, std::int64_t seq);

// Before and after the result.
void speak_too_early(const std::string& kind, std::int64_t seq);
void diagnose(const std::string& kind, std::int64_t seq, Ranks& ranks);

}  // namespace cp_pool::fake
