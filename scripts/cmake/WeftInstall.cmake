# cmake --install: the library, the headers, pkg-config and CMake package files.
file(GLOB weft_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/c_api/*.h")
install(TARGETS weft EXPORT weft LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${weft_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
