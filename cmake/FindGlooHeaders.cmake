# GlooHeaders::headers: Gloo's headers only. c10d::ProcessGroupGloo is declared with pointers to Gloo types, and its
# code and Gloo's own are inside libtorch_cpu: never link libgloo beside it.
find_path(GlooHeaders_INCLUDE_DIR gloo/algorithm.h)
mark_as_advanced(GlooHeaders_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GlooHeaders REQUIRED_VARS GlooHeaders_INCLUDE_DIR)
if(GlooHeaders_FOUND AND NOT TARGET GlooHeaders::headers)
  add_library(GlooHeaders::headers INTERFACE IMPORTED)
  target_include_directories(GlooHeaders::headers SYSTEM INTERFACE "${GlooHeaders_INCLUDE_DIR}")
endif()
