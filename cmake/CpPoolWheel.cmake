# Installs what a wheel contains (pip wheel . with scikit-build-core, which sets SKBUILD). The package folder has:
#   cp_pool/bin                  cp-pool and cp-pool-worker
#   cp_pool/lib                  libraries of the system that a fresh machine may lack
#   cp_pool/lib/cp-pool          the CUDA part
#   cp_pool/share/cp-pool        matrices
# The man page goes to the man pages of the environment. LibTorch is that of the torch package beside this one.
set(_package cp_pool)  # relative to the wheel's platlib, which is the prefix

# RPATH and not RUNPATH, since it also applies to the dependencies of the bundled libraries.
foreach(_program cp-pool cp-pool-worker)
  target_link_options(${_program} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${_program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
endforeach()
install(TARGETS cp-pool cp-pool-worker RUNTIME DESTINATION "${_package}/bin" COMPONENT wheel)
if(CP_POOL_HAVE_CUDA)
  set(_torch "$ORIGIN/../../../torch/lib")
  set(_nvidia "$ORIGIN/../../../nvidia")
  set_target_properties(cp_core_cuda PROPERTIES INSTALL_RPATH
                        "$ORIGIN/..;${_torch};${_nvidia}/cu13/lib;${_nvidia}/nccl/lib;${_nvidia}/cudnn/lib")
  install(TARGETS cp_core_cuda LIBRARY DESTINATION "${_package}/lib/cp-pool" COMPONENT wheel)
endif()

set(_modules "")
if(TARGET cp_pool_extension)
  target_link_options(cp_pool_extension PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(cp_pool_extension PROPERTIES INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")
  install(TARGETS cp_pool_extension LIBRARY DESTINATION "${_package}" COMPONENT wheel)
  set(_modules "$<TARGET_FILE:cp_pool_extension>")
endif()

# Libraries are bundled under the names that the programs ask for, and not as links, which a wheel cannot contain.
set(_bundled "$<TARGET_FILE:cp-pool>;$<TARGET_FILE:cp-pool-worker>")
install(CODE "set(programs \"${_bundled}\")\nset(modules \"${_modules}\")" COMPONENT wheel)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${modules}
       RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR unresolved
       PRE_INCLUDE_REGEXES "^lib(fmt|pugixml|dw|elf|z|lzma|bz2|zstd|edit|bsd|md|tinfo)\\.so" PRE_EXCLUDE_REGEXES ".*")
  if(unresolved)
    message(FATAL_ERROR "cannot bundle what is not found: ${unresolved}")
  endif()
  set(folder "${CMAKE_INSTALL_PREFIX}/cp_pool/lib")
  file(MAKE_DIRECTORY "${folder}")
  foreach(library ${libraries})
    file(REAL_PATH "${library}" real)
    cmake_path(GET library FILENAME name)
    message(STATUS "Bundling: ${name}")
    file(COPY_FILE "${real}" "${folder}/${name}" ONLY_IF_DIFFERENT)
  endforeach()
]] COMPONENT wheel)

install(DIRECTORY cases/matrices/ DESTINATION "${_package}/share/cp-pool/matrices" COMPONENT wheel FILES_MATCHING PATTERN "*.json")
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/man" DESTINATION "${SKBUILD_DATA_DIR}/share" COMPONENT wheel)

# cp_pool/built_for.py compares the installed torch with this version.
file(STRINGS "${CP_POOL_SITE_PACKAGES}/torch/version.py" _line REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = ['\"]([^'\"]+)['\"].*" "\\1" _torch_version "${_line}")
cp_pool_registered_names(_comm_types cases/comm_types.def)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/wheel/_built_for.py" @ONLY CONTENT
     "TORCH = \"@_torch_version@\"\nPYTHON = \"@Python_VERSION@\"\nCOMM_TYPES = (@_comm_types@)\n")
install(FILES "${CMAKE_BINARY_DIR}/wheel/_built_for.py" DESTINATION "${_package}" COMPONENT wheel)

# The target that builds everything a wheel needs.
add_custom_target(cp-pool-wheel DEPENDS cp-pool cp-pool-worker cp-pool-man cuda_part)
if(TARGET cp_pool_extension)
  add_dependencies(cp-pool-wheel cp_pool_extension)
endif()
