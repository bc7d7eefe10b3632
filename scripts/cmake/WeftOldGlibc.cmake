# weft_old_glibc: what ships links it to need no glibc newer than WEFT_OLDEST_GLIBC. It puts link libraries in which nothing newer
# exists before the system's glibc, and brings the functions that are then missing (src/runtime/old_glibc.c); with -z defs whatever
# else is too new is a link error that names it. The libraries that glibc 2.34 merged into libc.so.6 are needed by
# name, because before they had the functions. Sanitizers and the system's own libraries ask for the system's glibc anyway.
set(WEFT_OLDEST_GLIBC 2.28)
add_library(weft_old_glibc INTERFACE)
add_library(weft_old_glibc_program INTERFACE)  # for programs, whose constructors an older glibc would not run else
target_link_libraries(weft_old_glibc_program INTERFACE weft_old_glibc)
if(NOT WEFT_SANITIZE AND NOT WEFT_SYSTEM_DEPS)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  set(weft_glibc_link_libraries "${PROJECT_BINARY_DIR}/tools/glibc-${WEFT_OLDEST_GLIBC}")
  add_custom_command(OUTPUT "${weft_glibc_link_libraries}/libc.so"
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/cmake/glibc_link_libraries.py" --version ${WEFT_OLDEST_GLIBC}
            --out "${weft_glibc_link_libraries}" --cc "${CMAKE_C_COMPILER}" -fuse-ld=lld "-B${PROJECT_BINARY_DIR}/tools"
    DEPENDS "${PROJECT_SOURCE_DIR}/scripts/cmake/glibc_link_libraries.py"
    COMMENT "Link libraries of glibc ${WEFT_OLDEST_GLIBC}" VERBATIM)
  add_library(weft_old_glibc_code OBJECT "${PROJECT_SOURCE_DIR}/src/runtime/old_glibc.c" "${weft_glibc_link_libraries}/libc.so")
  target_link_libraries(weft_old_glibc_code PRIVATE weft_flags)
  target_sources(weft_old_glibc INTERFACE $<TARGET_OBJECTS:weft_old_glibc_code>)
  target_link_options(weft_old_glibc INTERFACE "-L${weft_glibc_link_libraries}" -Wl,-z,defs
    -Wl,--push-state,--no-as-needed -lpthread -ldl -lrt -Wl,--pop-state)
  set_target_properties(weft_old_glibc PROPERTIES INTERFACE_LINK_DEPENDS "${weft_glibc_link_libraries}/libc.so")
  target_sources(weft_old_glibc_program INTERFACE "${PROJECT_SOURCE_DIR}/src/cli/old_glibc_start.c")
endif()
