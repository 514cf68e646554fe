# The CUDA part: a module that the worker loads when its ranks are GPUs (cuda/cuda_part.h). It takes what it needs of
# cp_core from the program that loads it. Tests link its objects directly.

# CPU and GPU give the same bits (thd/merge_math.h).
set_source_files_properties(thd/merge_partial.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
set_source_files_properties(thd/merge_partial.cu PROPERTIES COMPILE_OPTIONS -fmad=false)

if(CP_POOL_HAVE_CUDA)
  add_library(cp_core_cuda_objects OBJECT
    attention/cuda_backends.cpp
    attention/cudnn_backend.cpp
    attention/cudnn_call.cpp
    attention/cudnn_graphs.cpp
    attention/cudnn_lane.cpp
    attention/cudnn_lane_plans.cpp
    attention/cudnn_plan_cache.cpp
    attention/flash_backend.cpp
    attention/flash_window.cpp
    attention/plan_store.cpp
    attention/score_max.cpp
    attention/stored_plans.cpp
    attention/tile_lanes.cpp
    attention/tile_rows.cpp
    attention/tile_rows.cu
    attention/widened.cpp
    comm/gpu_barrier.cpp
    comm/gpu_groups.cpp
    comm/gpu_link.cpp
    comm/held_memory.cpp
    comm/nccl_communicator.cpp
    comm/nccl_link.cpp
    comm/nccl_reduction.cpp
    comm/peer_communicator.cpp
    comm/peer_connection.cpp
    comm/peer_exchange.cpp
    comm/peer_kernel.cu
    comm/peer_link.cpp
    comm/peer_memory.cpp
    comm/peer_transfer.cpp
    cuda/delay.cu
    cuda/device.cpp
    cuda/driver_calls.cpp
    cuda/module.cpp
    cuda/stream_delays.cpp
    perf/cuda_captured_step.cpp
    perf/cuda_step_clock.cpp
    thd/copy_blocks.cu
    thd/copy_rows.cu
    thd/merge_partial.cu
    thd/row_kernels.cpp
    thd/sum_rows.cu
    verify/cuda_kernels.cpp
    verify/cuda_kernels.cu
  )
  # Constants of a kernel have the names that those of other kernels have.
  set_source_files_properties(attention/tile_rows.cu comm/peer_kernel.cu cuda/delay.cu thd/copy_blocks.cu thd/copy_rows.cu thd/merge_partial.cu
                              thd/sum_rows.cu verify/cuda_kernels.cu
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_compile_options(cp_core_cuda_objects PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --diag-suppress=20012>)
  target_link_libraries(cp_core_cuda_objects PUBLIC cp_cases cp_options LibTorch::cuda fmt::fmt)

  # The largest of all: a sixth of a minute less, and it runs once a plan.
  set_source_files_properties(attention/cudnn_graphs.cpp PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON)
  # Plans that are kept on disk are those of graphs that this very code describes.
  set(graph_sources attention/cudnn_graphs.cpp attention/cudnn_graphs.h)
  list(TRANSFORM graph_sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${graph_sources})
  set(graph_hashes "")
  foreach(source ${graph_sources})
    file(SHA256 "${source}" hash)
    string(APPEND graph_hashes ${hash})
  endforeach()
  string(SHA256 graph_hashes "${graph_hashes}")
  string(SUBSTRING "${graph_hashes}" 0 16 graph_hashes)
  set_source_files_properties(attention/cudnn_graphs.cpp PROPERTIES
                              COMPILE_DEFINITIONS CP_POOL_GRAPH_SOURCES="${graph_hashes}")

  cp_pool_use_precompiled(torch cp_core_cuda_objects)

  # Loaded before it: cuda/early_start.h.
  add_library(cp_core_early MODULE cuda/early_module.cpp)
  target_link_libraries(cp_core_early PRIVATE cp_options LibTorch::nccl)
  set_target_properties(cp_core_early PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

  add_library(cp_core_cuda MODULE $<TARGET_OBJECTS:cp_core_cuda_objects>)
  target_link_libraries(cp_core_cuda PRIVATE cp_core_cuda_objects)
  add_dependencies(cp_core_cuda cp_core_early)
  set_target_properties(cp_core_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_custom_target(cuda_part DEPENDS cp_core_cuda)
else()
  add_custom_target(cuda_part COMMAND "${CMAKE_COMMAND}" -E echo "no nvcc (CUDA Toolkit 13): built without the CUDA part" VERBATIM)
endif()
# Needs LibTorch's headers only.
cp_pool_test(plan_store_test LABEL unit TORCH LIBRARIES LibTorch::cpu cp_cases SOURCES
  attention/plan_store.cpp
  attention/plan_store_test.cpp
  attention/stored_plans.cpp
  attention/stored_plans_test.cpp
)
cp_pool_test(merge_math_test LABEL unit DISCOVER SOURCES thd/merge_math_test.cpp)
set_source_files_properties(thd/merge_math_test.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

if(CP_POOL_HAVE_CUDA)
  # The module, loaded as the worker loads it: into a program that has all of cp_core and shows it.
  cp_pool_test(cuda_module_test LABEL unit TORCH SOURCES cuda/module_test.cpp LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,cp_core>)
  set_target_properties(cuda_module_test PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(cuda_module_test cp_core_cuda)

  # Tests on GPUs, and a benchmark, with the part linked in.
  add_library(gpu_test_support OBJECT cuda/gpu_ranks.cpp cuda/gpu_test.cpp)
  target_link_libraries(gpu_test_support PUBLIC cp_cases cp_options LibTorch::cuda fmt::fmt GTest::gtest)
  cp_pool_not_optimised(gpu_test_support)
  set(CP_CORE_GPU_LIBRARIES gpu_test_support cp_core_cuda_objects cp_core)

  cp_pool_test(device_test LABEL gpu TORCH SOURCES cuda/device_test.cpp verify/cuda_kernels_test.cpp
               LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  cp_pool_test(row_kernels_test LABEL gpu TORCH SOURCES thd/row_kernels_test.cpp LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  cp_pool_test(gpu_huge_rows_test LABEL gpu TORCH SOURCES thd/huge_rows_test.cpp LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  target_compile_definitions(gpu_huge_rows_test PRIVATE CP_POOL_HUGE_ROWS_ON_GPU)
  cp_pool_test(peer_kernel_test LABEL gpu TORCH SOURCES comm/peer_kernel_test.cpp LIBRARIES ${CP_CORE_GPU_LIBRARIES})
  cp_pool_test(nccl_communicator_test LABEL gpu TORCH TIMEOUT 600 LIBRARIES ${CP_CORE_GPU_LIBRARIES}
               SOURCES comm/nccl_communicator_test.cpp comm/nccl_failures_test.cpp comm/peer_copies_test.cpp
                       comm/peer_puts_test.cpp)
  cp_pool_test(gpu_backends_test LABEL gpu TORCH TIMEOUT 600 LIBRARIES ${CP_CORE_GPU_LIBRARIES} SOURCES
    attention/gpu_backends_test.cpp
    attention/gpu_libraries_test.cpp
    attention/gpu_plans_test.cpp
    attention/gpu_score_blocks_test.cpp
    attention/gpu_test_support.cpp
    attention/gpu_whole_test.cpp
    attention/tile_group_cases.cpp
    attention/tile_reference.cpp
  )

  cp_pool_test(gpu_streams_test LABEL gpu TORCH TIMEOUT 600 LIBRARIES ${CP_CORE_GPU_LIBRARIES} SOURCES
    context_parallel/gpu_step.cpp
    context_parallel/gpu_streams_test.cpp
  )
  # Ranks that are threads, with one GPU among them.
  cp_pool_test(gpu_one_device_test LABEL gpu TORCH TIMEOUT 600
    LIBRARIES ${CP_CORE_GPU_LIBRARIES} verify_test_support
    SOURCES comm/gpu_local_communicator_test.cpp verify/gpu_one_device_test.cpp)
  cp_pool_test(gpu_mutants_test LABEL gpu TORCH TIMEOUT 600
    LIBRARIES gpu_test_support cp_core_cuda_objects cp_core_mutants verify_test_support
    SOURCES context_parallel/gpu_step.cpp verify/gpu_mutants_test.cpp)

  add_executable(row_kernels_bench thd/row_kernels_bench.cpp)
  target_link_libraries(row_kernels_bench PRIVATE cp_options cp_core_cuda_objects cp_core)
  cp_pool_use_precompiled(torch row_kernels_bench)
endif()
