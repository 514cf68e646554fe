# cp_pool_registered(<variable> <file>.def) sets the variable to the identifiers of the lines MACRO(identifier, ..) in
# the file. CMake configures again when the file changes, so that a new entry needs no change of a CMakeLists.txt.
function(cp_pool_registered variable file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines REGEX "^[A-Z_]+\\(")
  list(TRANSFORM lines REPLACE "^[A-Z_]+\\(([a-z0-9_]+).*" "\\1")
  set(${variable} ${lines} PARENT_SCOPE)
endfunction()

# cp_pool_registered_names(<variable> <file>.def) sets the variable to the names of the same lines, which are the second
# arguments, in quotes and separated by commas.
function(cp_pool_registered_names variable file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  file(STRINGS "${file}" lines REGEX "^[A-Z_]+\\(")
  list(TRANSFORM lines REPLACE "^[^\"]*(\"[^\"]+\").*" "\\1")
  list(JOIN lines ", " names)
  set(${variable} "${names}" PARENT_SCOPE)
endfunction()
