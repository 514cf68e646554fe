# The CUDA part: a module that the worker loads when its ranks are GPUs (cuda/cuda_part.h). It takes what it needs of
# cp_core from the program that loads it. Tests link its objects directly.
if(CP_POOL_HAVE_CUDA)
  add_library(cp_core_cuda_objects OBJECT
    attention/cuda_backends.cpp
    comm/nccl_communicator.cpp
    comm/nccl_link.cpp
    comm/nccl_places.cpp
    cuda/delay.cu
    cuda/device.cpp
    cuda/module.cpp
    cuda/stream_delays.cpp
    thd/row_kernels.cu
    verify/inputs.cu
  )
  target_compile_options(cp_core_cuda_objects PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --diag-suppress=20012>)
  target_link_libraries(cp_core_cuda_objects PUBLIC cp_cases cp_options LibTorch::cuda fmt::fmt)

  add_library(cp_core_cuda MODULE $<TARGET_OBJECTS:cp_core_cuda_objects>)
  target_link_libraries(cp_core_cuda PRIVATE cp_core_cuda_objects)
  set_target_properties(cp_core_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endif()
