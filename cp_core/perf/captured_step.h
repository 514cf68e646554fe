// A step that was recorded once and can be enqueued again as one launch, without the host's work for each kernel.
#pragma once

namespace cp_pool {

class CapturedStep {
 public:
  CapturedStep() = default;
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;
  virtual ~CapturedStep() = default;

  // Enqueues the step on the current stream. Reads and writes the memory that was captured.
  virtual void replay() = 0;
};

}  // namespace cp_pool
