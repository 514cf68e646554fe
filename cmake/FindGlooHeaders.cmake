# GlooHeaders::headers has only Gloo's headers, since c10d::ProcessGroupGloo is declared with pointers to Gloo types.
# The code of both is in libtorch_cpu, so libgloo must not be linked.
find_path(GlooHeaders_INCLUDE_DIR gloo/algorithm.h)
mark_as_advanced(GlooHeaders_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GlooHeaders REQUIRED_VARS GlooHeaders_INCLUDE_DIR)
if(GlooHeaders_FOUND AND NOT TARGET GlooHeaders::headers)
  add_library(GlooHeaders::headers INTERFACE IMPORTED)
  target_include_directories(GlooHeaders::headers SYSTEM INTERFACE "${GlooHeaders_INCLUDE_DIR}")
endif()
