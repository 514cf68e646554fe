# The CUDA part: a module that the worker loads when its ranks are GPUs (cuda/cuda_part.h). The module resolves symbols
# of cp_core in the program that loads it. Tests link the module's objects directly.

# No fused multiply-add, so that a merge gives the same bits on CPU and GPU (thd/merge_math.h).
set_source_files_properties(thd/merge_partial.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
set_source_files_properties(thd/merge_partial.cu PROPERTIES COMPILE_OPTIONS -fmad=false)

if(CP_POOL_HAVE_CUDA)
  # Built on demand (target cuda_part) and with the programs that need a GPU: it takes a seventh of a full build and is
  # of no use without a GPU.
  add_library(cp_core_cuda_objects OBJECT EXCLUDE_FROM_ALL
    attention/cudnn/cudnn_backend.cpp
    attention/cudnn/cudnn_batch.cpp
    attention/cudnn/cudnn_batch_plans.cpp
    attention/cudnn/cudnn_call.cpp
    attention/cudnn/cudnn_graphs.cpp
    attention/cudnn/plan_store.cpp
    attention/flash/flash_backend.cpp
    attention/tile_batches.cpp
    attention/tile_rows.cpp
    attention/tile_rows.cu
    attention/library_kernels.cpp
    comm/nccl/gpu_groups.cpp
    comm/nccl/nccl_link.cpp
    comm/peer/gpu_barrier.cpp
    comm/peer/gpu_link.cpp
    comm/peer/peer_communicator.cpp
    comm/peer/peer_connection.cpp
    comm/peer/peer_link.cpp
    comm/peer/peer_memory.cpp
    comm/peer/peer_transfer.cpp
    cuda/device.cpp
    cuda/driver_calls.cpp
    cuda_module/cuda_module.cpp
    cuda/stream_delays.cpp
    perf/cuda_steps.cpp
    thd/copy_blocks.cu
    thd/merge_partial.cu
    thd/row_kernels.cpp
    thd/sum_rows.cu
    verify/cuda_kernels.cpp
    verify/cuda_kernels.cu
  )
  # Sources of kernels name their constants alike, so they cannot share a translation unit.
  set_source_files_properties(attention/tile_rows.cu thd/copy_blocks.cu thd/merge_partial.cu
                              thd/sum_rows.cu verify/cuda_kernels.cu
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_compile_options(cp_core_cuda_objects PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --diag-suppress=20012>)
  target_link_libraries(cp_core_cuda_objects PUBLIC cp_cases cp_options LibTorch::cuda fmt::fmt)

  # The slowest source to compile. -O1 saves ten seconds of the build, and the code runs only once for each plan.
  set_source_files_properties(attention/cudnn/cudnn_graphs.cpp PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
  # A hash of the code that describes graphs is part of the key of a plan on disk, so that a plan which older code made
  # is not used.
  set(graph_sources attention/cudnn/cudnn_graphs.cpp attention/cudnn/cudnn_graphs.h)
  list(TRANSFORM graph_sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${graph_sources})
  set(graph_hashes "")
  foreach(source ${graph_sources})
    file(SHA256 "${source}" hash)
    string(APPEND graph_hashes ${hash})
  endforeach()
  string(SHA256 graph_hashes "${graph_hashes}")
  string(SUBSTRING "${graph_hashes}" 0 16 graph_hashes)
  set_source_files_properties(attention/cudnn/cudnn_graphs.cpp PROPERTIES
                              COMPILE_DEFINITIONS CP_POOL_GRAPH_SOURCES="${graph_hashes}")

  cp_pool_use_precompiled(torch cp_core_cuda_objects)

  add_library(cp_core_cuda MODULE EXCLUDE_FROM_ALL $<TARGET_OBJECTS:cp_core_cuda_objects>)
  target_link_libraries(cp_core_cuda PRIVATE cp_core_cuda_objects)
  set_target_properties(cp_core_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_custom_target(cuda_part DEPENDS cp_core_cuda)
  add_dependencies(gpu_programs cuda_part)
else()
  add_custom_target(cuda_part COMMAND "${CMAKE_COMMAND}" -E echo "no nvcc (CUDA Toolkit 13): built without the CUDA part" VERBATIM)
endif()
# These sources need only the headers of LibTorch, neither cp_core nor CUDA.
cp_pool_test(plan_store_test LABEL unit TORCH LIBRARIES LibTorch::cpu cp_cases SOURCES
  attention/cudnn/plan_store.cpp
  attention/cudnn/plan_store_test.cpp
  attention/cudnn/stored_plans_test.cpp
)
cp_pool_test(merge_math_test LABEL unit SOURCES thd/merge_math_test.cpp)
set_source_files_properties(thd/merge_math_test.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

if(CP_POOL_HAVE_CUDA)
  # Loads the module as the worker does, into a program that contains and exports all of cp_core. It needs no GPU.
  cp_pool_test(cuda_module_test LABEL gpu TORCH SOURCES cuda_module/cuda_module_test.cpp LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,cp_core>)
  set_target_properties(cuda_module_test PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(cuda_module_test cp_core_cuda)

  # Tests on GPUs. They link the CUDA part directly.
  add_library(gpu_testing OBJECT EXCLUDE_FROM_ALL testing/busy_gpu.cu testing/gpu_ranks.cpp testing/gpu_fixture.cpp)
  target_link_libraries(gpu_testing PUBLIC cp_cases cp_options LibTorch::cuda fmt::fmt GTest::gtest)
  cp_pool_not_optimised(gpu_testing)
  set(CP_CORE_GPU_LIBRARIES gpu_testing cp_core_cuda_objects cp_core)

  cp_pool_test(device_test LABEL gpu TORCH SOURCES cuda/device_test.cpp verify/cuda_kernels_test.cpp
               LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  cp_pool_test(row_kernels_test LABEL gpu TORCH SOURCES thd/row_kernels_test.cpp LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  cp_pool_test(gpu_huge_rows_test LABEL gpu TORCH SOURCES thd/huge_rows_test.cpp LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  target_compile_definitions(gpu_huge_rows_test PRIVATE CP_POOL_HUGE_ROWS_ON_GPU)
  cp_pool_test(nccl_communicator_test LABEL gpu TORCH LIBRARIES ${CP_CORE_GPU_LIBRARIES}
               SOURCES comm/nccl/nccl_communicator_test.cpp comm/nccl/nccl_failures_test.cpp comm/peer/peer_copies_test.cpp
                       comm/peer/peer_puts_test.cpp)
  cp_pool_test(gpu_backends_test LABEL gpu TORCH LIBRARIES ${CP_CORE_GPU_LIBRARIES} cp_core_testing SOURCES
    attention/cudnn/gpu_plans_test.cpp
    attention/gpu_backends_test.cpp
    attention/gpu_libraries_test.cpp
    attention/gpu_whole_test.cpp
    attention/math/gpu_score_blocks_test.cpp
    testing/tile_groups_on_gpu.cpp
  )

  cp_pool_test(gpu_streams_test LABEL gpu TORCH LIBRARIES ${CP_CORE_GPU_LIBRARIES} SOURCES
    context_parallel/gpu_streams_test.cpp
    testing/gpu_step.cpp
  )
  # Ranks are threads that share one GPU.
  cp_pool_test(gpu_one_device_test LABEL gpu TORCH
    LIBRARIES ${CP_CORE_GPU_LIBRARIES} cp_core_testing
    SOURCES testing/gpu_local_communicator_test.cpp run_case/gpu_one_device_test.cpp)
  cp_pool_test(gpu_mutants_test LABEL gpu TORCH
    LIBRARIES gpu_testing cp_core_cuda_objects cp_core_mutants cp_core_testing
    SOURCES testing/gpu_step.cpp run_case/gpu_mutants_test.cpp)
endif()
