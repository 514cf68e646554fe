# Asio::asio is standalone Asio, for which Debian has no CMake config. One source of the driver compiles Asio's
# implementation (ASIO_SEPARATE_COMPILATION).
find_path(Asio_INCLUDE_DIR asio.hpp)
mark_as_advanced(Asio_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Asio REQUIRED_VARS Asio_INCLUDE_DIR)
if(Asio_FOUND AND NOT TARGET Asio::asio)
  add_library(Asio::asio INTERFACE IMPORTED)
  target_include_directories(Asio::asio SYSTEM INTERFACE "${Asio_INCLUDE_DIR}")
  # The aligned allocator of Asio 1.22 trips -Wmismatched-new-delete under g++ 12 -O2.
  target_compile_definitions(Asio::asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED ASIO_SEPARATE_COMPILATION
                                                  ASIO_DISABLE_STD_ALIGNED_ALLOC)
  if(CP_POOL_SANITIZE MATCHES "thread")
    # ThreadSanitizer does not understand bare fences. Asio's queues have locks too, so they do not need the fences.
    target_compile_definitions(Asio::asio INTERFACE ASIO_DISABLE_FENCED_BLOCK)
  endif()
  target_link_libraries(Asio::asio INTERFACE Threads::Threads)
endif()
