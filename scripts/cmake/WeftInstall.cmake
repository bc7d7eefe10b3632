# cmake --install: component `library` (stripped in release builds), `command` (the program weft), `development` (headers,
# their description, pkg-config and CMake package files).
include(CMakePackageConfigHelpers)

file(GLOB weft_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/c_api/*.h")
set(weft_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")
# A prefix given to `cmake --install --prefix` is known only then, so the file is filled in at that time.
install(CODE "
  set(WEFT_PC_LIBDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")
  set(WEFT_PC_INCLUDEDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/weft\")
  set(WEFT_RELEASE_VERSION \"${WEFT_RELEASE_VERSION}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/pkgconfig/weft.pc.in\" \"${PROJECT_BINARY_DIR}/generated/weft.pc\" @ONLY)
" COMPONENT development)
install(FILES "${PROJECT_BINARY_DIR}/generated/weft.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)

install(TARGETS weft EXPORT weft LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT library NAMELINK_COMPONENT development)
if(TARGET weft_cli)
  install(TARGETS weft_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()
install(FILES ${weft_headers} "${PROJECT_SOURCE_DIR}/include/c_api/weft_api.json"
  "${PROJECT_SOURCE_DIR}/include/c_api/weft_api.schema.json" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft COMPONENT development)
install(EXPORT weft NAMESPACE weft:: FILE weftTargets.cmake DESTINATION "${weft_package_dir}" COMPONENT development)
configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/weftConfig.cmake.in"
               "${PROJECT_BINARY_DIR}/generated/weftConfig.cmake" COPYONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/weftConfigVersion.cmake"
  VERSION ${WEFT_RELEASE_VERSION} COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/generated/weftConfig.cmake"
              "${PROJECT_BINARY_DIR}/generated/weftConfigVersion.cmake" DESTINATION "${weft_package_dir}" COMPONENT development)

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Beside the library: what an installation ships. abidiff reads the unstripped one.
  add_custom_command(TARGET weft POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/lib/stripped"
    COMMAND ${CMAKE_STRIP} -o "${PROJECT_BINARY_DIR}/lib/stripped/libweft.so.${WEFT_ABI_MAJOR}" "$<TARGET_FILE:weft>"
    VERBATIM)
endif()
