# cp_pool_registered(<variable> <file>.def) gives the identifiers that a list of lines MACRO(identifier, ..) names, and
# configures again when the list changes: what is registered in it needs no line here.
function(cp_pool_registered variable file)
  cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines REGEX "^[A-Z_]+\\(")
  list(TRANSFORM lines REPLACE "^[A-Z_]+\\(([a-z0-9_]+).*" "\\1")
  set(${variable} ${lines} PARENT_SCOPE)
endfunction()
