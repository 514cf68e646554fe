# A wheel is built for the torch of the Python that runs pip, unless CP_POOL_SITE_PACKAGES names another (pip wheel
# --config-settings cmake.define.CP_POOL_SITE_PACKAGES=..). With build isolation pip hides that torch from the build,
# but python -I still finds it.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
if(NOT CP_POOL_SITE_PACKAGES)
  set(_where "import importlib.util, os; s = importlib.util.find_spec('torch'); print(os.path.dirname(os.path.dirname(s.origin)) if s else '')")
  foreach(_isolated "" -I)
    execute_process(COMMAND "${Python_EXECUTABLE}" ${_isolated} -c "${_where}" OUTPUT_VARIABLE _found
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(_found)
      set(CP_POOL_SITE_PACKAGES "${_found}" CACHE PATH "site-packages folder that holds the torch wheel")
      break()
    endif()
  endforeach()
  if(NOT CP_POOL_SITE_PACKAGES)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch. cp_pool is built for the torch that it will be used with: install "
                        "torch first, and build with the Python of that environment.")
  endif()
endif()
message(STATUS "the wheel is for Python ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR} and the torch in ${CP_POOL_SITE_PACKAGES}")
