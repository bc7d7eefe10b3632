# cmake --install: component `runtime` (the library without symbols, licences), `debug` (the symbols, where debuggers look for
# them), `tools` (the program weft and its manual page), `dev` (headers, their description, pkg-config and CMake package
# files), `doc`. Every file finds the others by where it stands itself, so that the whole may be moved. `uninstall` is a target.
include(CMakePackageConfigHelpers)

set(weft_library_file "libweft.so.${WEFT_ABI_MAJOR}")
set(weft_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
file(RELATIVE_PATH WEFT_PREFIX_FROM_PKGCONFIG "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
file(RELATIVE_PATH WEFT_PREFIX_FROM_PACKAGE "/prefix/${weft_package_dir}" "/prefix")
string(REGEX REPLACE "/$" "" WEFT_PREFIX_FROM_PKGCONFIG "${WEFT_PREFIX_FROM_PKGCONFIG}")
string(REGEX REPLACE "/$" "" WEFT_PREFIX_FROM_PACKAGE "${WEFT_PREFIX_FROM_PACKAGE}")
configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/weft.pc.in" "${PROJECT_BINARY_DIR}/generated/weft.pc" @ONLY)
configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/weft-cpp.pc.in" "${PROJECT_BINARY_DIR}/generated/weft-cpp.pc" @ONLY)
configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/weftConfig.cmake.in" "${PROJECT_BINARY_DIR}/generated/weftConfig.cmake" @ONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/weftConfigVersion.cmake"
  VERSION ${WEFT_RELEASE_VERSION} COMPATIBILITY SameMajorVersion)

# --- runtime and debug -------------------------------------------------------------------------------
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT WEFT_SANITIZE)
  # Beside the library: what an installation ships. abidiff reads the unstripped one.
  set(weft_ships "${PROJECT_BINARY_DIR}/lib/stripped")
  file(MAKE_DIRECTORY "${weft_ships}")
  add_custom_command(TARGET weft POST_BUILD
    COMMAND ${CMAKE_OBJCOPY} --only-keep-debug "$<TARGET_FILE:weft>" "${weft_library_file}.debug"
    COMMAND ${CMAKE_OBJCOPY} --strip-all "--add-gnu-debuglink=${weft_library_file}.debug" "$<TARGET_FILE:weft>" "${weft_library_file}"
    WORKING_DIRECTORY "${weft_ships}" VERBATIM)
  install(FILES "${weft_ships}/${weft_library_file}.debug" DESTINATION "${CMAKE_INSTALL_LIBDIR}/.debug" COMPONENT debug)
else()
  set(weft_ships "${PROJECT_BINARY_DIR}/lib")
endif()
install(PROGRAMS "${weft_ships}/${weft_library_file}" DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# Licences and versions of everything in the library, from the list of files that the linker read.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT WEFT_SANITIZE AND NOT WEFT_SYSTEM_DEPS)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  set(weft_notices "${PROJECT_BINARY_DIR}/notices")
  set(weft_link_inputs "${PROJECT_BINARY_DIR}/lib/libweft.inputs")
  target_link_options(weft PRIVATE "-Wl,--dependency-file=${weft_link_inputs}")
  set(weft_notices_script "${PROJECT_SOURCE_DIR}/scripts/cmake/notices.py")
  set_property(TARGET weft APPEND PROPERTY LINK_DEPENDS "${weft_notices_script}")
  add_custom_command(TARGET weft POST_BUILD
    COMMAND "${Python3_EXECUTABLE}" "${weft_notices_script}" --inputs "${weft_link_inputs}" --own "${PROJECT_BINARY_DIR}"
            --private "${WEFT_DEPS_PREFIX}" --library "${weft_ships}/${weft_library_file}" --version ${WEFT_RELEASE_VERSION}
            --source "${PROJECT_SOURCE_DIR}" --out "${weft_notices}"
    VERBATIM)
  install(FILES "${weft_notices}/THIRD_PARTY_NOTICES" "${weft_notices}/weft.spdx.json"
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
endif()

# --- tools -------------------------------------------------------------------------------------------
if(TARGET weft_cli)
  install(TARGETS weft_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  install(FILES "${PROJECT_SOURCE_DIR}/docs/weft.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools)
  install(FILES "${weft_completions}/weft" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT tools)
  install(FILES "${weft_completions}/_weft" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT tools)
  install(FILES "${weft_completions}/weft.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT tools)
endif()

# --- dev ---------------------------------------------------------------------------------------------
file(GLOB weft_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/c_api/*.h")
set(weft_c_api "${PROJECT_SOURCE_DIR}/include/c_api")
install(FILES ${weft_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft COMPONENT dev)
install(FILES "${weft_c_api}/weft_api.json" "${weft_c_api}/weft_api.schema.json" "${PROJECT_SOURCE_DIR}/bindings/generate/api.json" "${weft_c_api}/ops.json"
  DESTINATION ${CMAKE_INSTALL_DATADIR}/weft COMPONENT dev)
weft_install_binding(ffi "${CMAKE_INSTALL_DATADIR}/weft/ffi")
install(FILES "${PROJECT_BINARY_DIR}/lib/libweft.so" DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
# libweft.hpp stands beside the folder weft, its parts in the folder libweft.
weft_install_binding(cpp "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_BINARY_DIR}/generated/weft.pc" "${PROJECT_BINARY_DIR}/generated/weft-cpp.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
install(FILES "${PROJECT_BINARY_DIR}/generated/weftConfig.cmake" "${PROJECT_BINARY_DIR}/generated/weftConfigVersion.cmake"
  DESTINATION "${weft_package_dir}" COMPONENT dev)

# --- doc ---------------------------------------------------------------------------------------------
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
  PATTERN "weft.1" EXCLUDE PATTERN "__pycache__" EXCLUDE)
set(weft_pages README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md)
list(TRANSFORM weft_pages PREPEND "${PROJECT_SOURCE_DIR}/")
install(FILES ${weft_pages} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(FILES "${PROJECT_SOURCE_DIR}/bindings/README.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}/bindings" COMPONENT doc)

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} "-DWEFT_BUILD=${PROJECT_BINARY_DIR}"
  -P "${PROJECT_SOURCE_DIR}/scripts/cmake/uninstall.cmake" VERBATIM)
