// An operation of GPU ranks that has been enqueued.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include "cp_core/comm/communicator.h"
#include "cp_core/comm/peer/gpu_link.h"

namespace cp_pool {

// Holds the tensors of an operation on `stream`. wait() orders the caller's stream after the operation, so their memory
// may then be reused there. A Work that was never waited for tells the allocator to keep the memory until `stream` has
// finished with it; doing so for every operation would cost an event per tensor.
class GpuWork final : public Work {
 public:
  GpuWork(std::shared_ptr<GpuLink> link, std::string step, c10::cuda::CUDAStream stream,
          std::vector<at::Tensor> tensors)
      : link_(std::move(link)), step_(std::move(step)), stream_(stream), tensors_(std::move(tensors)) {}
  GpuWork(const GpuWork&) = delete;
  GpuWork& operator=(const GpuWork&) = delete;
  ~GpuWork() override {
    for (const at::Tensor& tensor : tensors_) tensor.record_stream(stream_);
  }

  // Called when the whole operation has been enqueued.
  void enqueued() {
    done_ = std::make_shared<c10::cuda::CUDAEvent>();
    done_->record(stream_);
    link_->add_pending(step_, done_);
  }

  void wait() override {
    link_->throw_if_failed(step_);
    done_->block(c10::cuda::getCurrentCUDAStream(link_->device()));
    tensors_.clear();
  }

 private:
  std::shared_ptr<GpuLink> link_;
  std::string step_;
  c10::cuda::CUDAStream stream_;
  std::shared_ptr<c10::cuda::CUDAEvent> done_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace cp_pool
