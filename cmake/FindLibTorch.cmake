# LibTorch::cpu: ATen and c10d of the PyTorch wheel, from the site-packages of .venv (or CP_POOL_SITE_PACKAGES).
# PyTorch's own find_package(Torch) asks for nvcc; this module needs no CUDA.
if(CP_POOL_SITE_PACKAGES AND NOT IS_DIRECTORY "${CP_POOL_SITE_PACKAGES}")
  # tools/setup has made another environment: nothing that was found in the old one is there.
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
  # The wheel's include folder has fmt's headers too, of another version and without a library: the system's, which we
  # link, must be found first.
  find_path(LibTorch_SYSTEM_FMT_DIR fmt/core.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  mark_as_advanced(LibTorch_SYSTEM_FMT_DIR)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/system-fmt")
  file(CREATE_LINK "${LibTorch_SYSTEM_FMT_DIR}/fmt" "${CMAKE_BINARY_DIR}/system-fmt/fmt" SYMBOLIC)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE "${CMAKE_BINARY_DIR}/system-fmt" "${LibTorch_INCLUDE_DIR}"
                                                            "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_definitions(LibTorch::cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # The libraries register kernels in static constructors: keep them even where no symbol seems used.
  target_link_libraries(LibTorch::cpu INTERFACE -Wl,--no-as-needed "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}"
                                                -Wl,--as-needed)
endif()
