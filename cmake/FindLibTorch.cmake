# LibTorch::cpu is ATen and c10d of the PyTorch wheel in the site-packages of .venv (or in CP_POOL_SITE_PACKAGES).
# PyTorch's own find_package(Torch) requires nvcc; this module does not need CUDA.
if(CP_POOL_SITE_PACKAGES AND NOT IS_DIRECTORY "${CP_POOL_SITE_PACKAGES}")
  # tools/setup has made another environment, so all paths that were found in the old one are wrong.
  get_cmake_property(_cached CACHE_VARIABLES)
  foreach(_name ${_cached})
    if(_name STREQUAL "CP_POOL_SITE_PACKAGES" OR _name MATCHES "^LibTorch(Cuda)?_")
      unset(${_name} CACHE)
    endif()
  endforeach()
endif()
if(NOT CP_POOL_SITE_PACKAGES)
  file(GLOB _site_packages "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages")
  set(CP_POOL_SITE_PACKAGES "${_site_packages}" CACHE PATH "site-packages folder that holds the torch wheel" FORCE)
endif()
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATHS "${CP_POOL_SITE_PACKAGES}/torch/include" NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${CP_POOL_SITE_PACKAGES}/torch/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${CP_POOL_SITE_PACKAGES}/torch/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY
                                                         LibTorch_C10_LIBRARY)
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  # The wheel's include folder also has fmt's headers, of another version and without a library. The system's headers,
  # whose library is linked, must be found first.
  find_path(LibTorch_SYSTEM_FMT_DIR fmt/core.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(LibTorch_SYSTEM_FMT_DIR)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/system-fmt")
  file(CREATE_LINK "${LibTorch_SYSTEM_FMT_DIR}/fmt" "${CMAKE_BINARY_DIR}/system-fmt/fmt" SYMBOLIC)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE "${CMAKE_BINARY_DIR}/system-fmt" "${LibTorch_INCLUDE_DIR}"
                                                            "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_definitions(LibTorch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # The libraries register kernels in static constructors, so they must be linked even if no symbol of them seems to be
  # used.
  target_link_libraries(LibTorch::cpu INTERFACE -Wl,--no-as-needed "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}"
                                                -Wl,--as-needed)
endif()
