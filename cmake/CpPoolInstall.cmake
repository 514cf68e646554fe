# What cmake --install (tools/install) installs: programs, the modules of the CUDA part, matrices, man page, completions
# and documents. The installation may be moved. It uses LibTorch's libraries where they are; .venv is a link, which is
# resolved, so that this checkout is not needed.
file(REAL_PATH "${CP_POOL_SITE_PACKAGES}" _site_packages)
set(_torch "${_site_packages}/torch/lib")
set(_nvidia "${_site_packages}/nvidia")
set_target_properties(cp-pool-worker PROPERTIES INSTALL_RPATH "${_torch}")
install(TARGETS cp-pool cp-pool-worker RUNTIME DESTINATION bin)
if(CP_POOL_HAVE_CUDA)
  set_target_properties(cp_core_cuda PROPERTIES
                        INSTALL_RPATH "${_torch};${_nvidia}/cu13/lib;${_nvidia}/nccl/lib;${_nvidia}/cudnn/lib")
  # cp_core/cuda/cuda_part.cpp and driver/cli/device.h look for the modules there.
  install(TARGETS cp_core_cuda LIBRARY DESTINATION lib/cp-pool OPTIONAL)
endif()
install(DIRECTORY cases/matrices/ DESTINATION share/cp-pool/matrices FILES_MATCHING PATTERN "*.json")
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/man" "${CMAKE_BINARY_DIR}/share/bash-completion"
                  "${CMAKE_BINARY_DIR}/share/zsh" "${CMAKE_BINARY_DIR}/share/fish" DESTINATION share)
# For projects that register matrices with CTest (docs/ci.md).
install(FILES cmake/CpPoolTests.cmake DESTINATION share/cp-pool/cmake)
install(FILES README.md LICENSE DESTINATION share/doc/cp-pool)
# The workers of docs/examples can be run as they are.
install(DIRECTORY docs DESTINATION share/doc/cp-pool USE_SOURCE_PERMISSIONS PATTERN "__pycache__" EXCLUDE)
