# LibTorch::nccl is only the CUDA runtime and NCCL of the PyTorch wheel.
# LibTorch::cuda is the CUDA half of the PyTorch wheel with its CUDA runtime, NCCL, cuDNN and the cudnn-frontend
# headers, from the same site-packages as LibTorch::cpu.
set(_nvidia "${CP_POOL_SITE_PACKAGES}/nvidia")
find_library(LibTorchCuda_CUDA_LIBRARY torch_cuda PATHS "${CP_POOL_SITE_PACKAGES}/torch/lib" NO_DEFAULT_PATH)
find_library(LibTorchCuda_C10_LIBRARY c10_cuda PATHS "${CP_POOL_SITE_PACKAGES}/torch/lib" NO_DEFAULT_PATH)
find_library(LibTorchCuda_CUDART_LIBRARY NAMES cudart libcudart.so.13 PATHS "${_nvidia}/cu13/lib" NO_DEFAULT_PATH)
# cudnn-frontend needs NVRTC.
find_library(LibTorchCuda_NVRTC_LIBRARY NAMES nvrtc libnvrtc.so.13 PATHS "${_nvidia}/cu13/lib" NO_DEFAULT_PATH)
find_library(LibTorchCuda_NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS "${_nvidia}/nccl/lib" NO_DEFAULT_PATH)
find_library(LibTorchCuda_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 PATHS "${_nvidia}/cudnn/lib" NO_DEFAULT_PATH)
find_path(LibTorchCuda_CUDART_INCLUDE_DIR cuda_runtime_api.h PATHS "${_nvidia}/cu13/include" NO_DEFAULT_PATH)
# The runtime headers of the wheel include crt/, which belongs to the compiler and may only be in the toolkit. The
# toolkit's folder comes after the wheel's, so that nothing else is taken from it.
find_path(LibTorchCuda_CRT_INCLUDE_DIR crt/host_defines.h
          PATHS "${_nvidia}/cu13/include" ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} NO_DEFAULT_PATH)
find_path(LibTorchCuda_NCCL_INCLUDE_DIR nccl.h PATHS "${_nvidia}/nccl/include" NO_DEFAULT_PATH)
find_path(LibTorchCuda_CUDNN_INCLUDE_DIR cudnn.h PATHS "${_nvidia}/cudnn/include" NO_DEFAULT_PATH)
find_path(LibTorchCuda_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATHS "${CP_POOL_SITE_PACKAGES}/include"
          NO_DEFAULT_PATH)
set(_required
    LibTorchCuda_CUDA_LIBRARY LibTorchCuda_C10_LIBRARY LibTorchCuda_CUDART_LIBRARY LibTorchCuda_NVRTC_LIBRARY
    LibTorchCuda_NCCL_LIBRARY LibTorchCuda_CUDNN_LIBRARY LibTorchCuda_CUDART_INCLUDE_DIR LibTorchCuda_CRT_INCLUDE_DIR
    LibTorchCuda_NCCL_INCLUDE_DIR LibTorchCuda_CUDNN_INCLUDE_DIR LibTorchCuda_CUDNN_FRONTEND_INCLUDE_DIR)
mark_as_advanced(${_required})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorchCuda REQUIRED_VARS ${_required})
if(LibTorchCuda_FOUND AND NOT TARGET LibTorch::cuda)
  add_library(LibTorch::nccl INTERFACE IMPORTED)
  target_include_directories(
    LibTorch::nccl SYSTEM INTERFACE "${LibTorchCuda_CUDART_INCLUDE_DIR}" "${LibTorchCuda_NCCL_INCLUDE_DIR}"
                                    "${LibTorchCuda_CRT_INCLUDE_DIR}")
  target_link_libraries(LibTorch::nccl INTERFACE "${LibTorchCuda_CUDART_LIBRARY}" "${LibTorchCuda_NCCL_LIBRARY}")
  add_library(LibTorch::cuda INTERFACE IMPORTED)
  target_include_directories(
    LibTorch::cuda SYSTEM
    INTERFACE "${LibTorchCuda_CUDART_INCLUDE_DIR}" "${LibTorchCuda_NCCL_INCLUDE_DIR}"
              "${LibTorchCuda_CUDNN_INCLUDE_DIR}" "${LibTorchCuda_CUDNN_FRONTEND_INCLUDE_DIR}"
              "${LibTorchCuda_CRT_INCLUDE_DIR}")
  target_link_libraries(
    LibTorch::cuda
    INTERFACE LibTorch::cpu -Wl,--no-as-needed "${LibTorchCuda_CUDA_LIBRARY}" "${LibTorchCuda_C10_LIBRARY}"
              -Wl,--as-needed "${LibTorchCuda_CUDART_LIBRARY}" "${LibTorchCuda_NVRTC_LIBRARY}"
              "${LibTorchCuda_NCCL_LIBRARY}" "${LibTorchCuda_CUDNN_LIBRARY}")
endif()
