// The entry point of libcp_core_cuda.so, which fills the tables of the CUDA part (cuda/cuda_part.h).
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/cuda/device.h"
#include "cp_core/perf/cuda_steps.h"
#include "cp_core/thd/row_kernels.h"
#include "cp_core/verify/cuda_kernels.h"

extern "C" __attribute__((visibility("default"))) void cp_pool_give_cuda_part() {
  using namespace cp_pool;
  give_cuda_part<CudaDevice>({.use_device = cuda::use_device,
                              .visible_devices = cuda::visible_devices,
                              .takes_one_process = cuda::takes_one_process,
                              .device_name = cuda::device_name,
                              .versions = cuda::versions,
                              .memory = cuda::memory,
                              .synchronize = cuda::synchronize,
                              .reset = cuda::reset,
                              .release_cached_memory = cuda::release_cached_memory,
                              .random_delay = cuda::random_delay,
                              .set_stream_delays = cuda::set_stream_delays});
  give_cuda_part<RowKernels>({.copy_blocks = cuda::copy_blocks,
                              .sum_rows = cuda::sum_rows,
                              .merge_partial = cuda::merge_partial,
                              .merge_sink = cuda::merge_sink,
                              .sink_gradient = cuda::sink_gradient});
  give_cuda_part<GpuGroups>({.make = make_gpu_groups});
  give_cuda_part<CudaBackends>({.make = make_cuda_backend});
  give_cuda_part<CudaSteps>({.capture = cuda::capture, .make_clock = cuda::make_step_clock});
  give_cuda_part<VerifyKernels>(
      {.fill_nearly_normal = verify::fill_nearly_normal_cuda, .sum_words = verify::sum_words_cuda});
}
